// Beat the model: guess the next letter of a held-out text, as Shannon (1951) let people do.
import { button, h, job, recall, remember, say, stream } from "./dom.js";

const GIVEN = 40; // characters to begin from
const ROUNDS = 30;

export function gameView(run) {
  const shown = h("p", { class: "page game" });
  const told = h("p", { class: "muted", "aria-live": "polite" });
  const guess = h("input", { type: "text", maxlength: 1, autocomplete: "off", autocapitalize: "off", "aria-label": "Your guess of the next character", placeholder: "next", disabled: true });
  const skip = button("Tell me", () => settle(true), { disabled: true });
  const board = h("div", {});
  let tokens = [];
  let place = 0;
  let tries = [];
  let ranks = [];
  let number = 0;

  const element = h("details", { class: "card", ontoggle: (event) => event.target.open && !tokens.length && begin() },
    h("summary", {}, "Beat the model: guess the next letter"),
    h("p", { class: "muted" }, `Type what comes next, until it is right; ${ROUNDS} letters make a game. Your bits are the entropy of how often you needed 1, 2, 3… guesses, an upper bound of what the text tells you (Shannon 1951); the model's are −log₂ of the probability that it gave each letter.`),
    shown, h("div", { class: "buttons" }, guess, skip, button("New text", () => begin())), told, board);

  const begin = () => job.run(async (signal) => {
    const text = run.examples[number++ % run.examples.length];
    const records = [];
    [tokens, tries, ranks, place] = [[], [], [], 0];
    board.replaceChildren();
    draw(); // nothing can be guessed until the text is there
    for await (const record of stream("playground/read", { run: run.name, text }, signal)) if (!record.finish) records.push(record);
    tokens = records;
    place = Math.min(GIVEN, Math.floor(tokens.length / 2));
    draw();
    guess.focus();
  });

  const end = () => Math.min(tokens.length, GIVEN + ROUNDS);
  const visible = (token) => (token.text === "\n" ? "↵" : token.text === " " ? "␣" : token.text);

  function draw() {
    shown.replaceChildren(tokens.slice(0, place).map((token) => token.text).join(""), h("span", { class: "gap" }, place < end() ? "?" : ""));
    guess.disabled = skip.disabled = place >= end();
    if (tries.length) told.textContent = `Not ${tries.map((letter) => `“${letter}”`).join(", ")}.`;
  }

  function settle(gaveUp = false) {
    const token = tokens[place];
    // Whoever gives up would have needed half of the letters left, on average.
    ranks.push(gaveUp ? tries.length + Math.ceil((run.facts.symbols - tries.length) / 2) : tries.length + 1);
    const rank = token.top.findIndex(([id]) => id === token.id) + 1;
    told.textContent = `“${visible(token)}”: you needed ${gaveUp ? "help" : `${ranks.at(-1)} ${ranks.at(-1) === 1 ? "guess" : "guesses"}`}; for the model it was ${rank ? `number ${rank}` : "none of its ten likeliest"}, at ${(token.nats / Math.LN2).toFixed(2)} bits.`;
    tries = [];
    place++;
    score();
    shown.replaceChildren(tokens.slice(0, place).map((one) => one.text).join(""), h("span", { class: "gap" }, place < end() ? "?" : ""));
    guess.disabled = skip.disabled = place >= end();
  }

  function score() {
    const from = place - ranks.length;
    const model = tokens.slice(from, place).reduce((sum, token) => sum + token.nats, 0) / Math.LN2 / ranks.length;
    const counts = new Map();
    for (const rank of ranks) counts.set(rank, (counts.get(rank) ?? 0) + 1);
    const mine = [...counts.values()].reduce((sum, count) => sum - (count / ranks.length) * Math.log2(count / ranks.length), 0);
    const first = ranks.filter((rank) => rank === 1).length / ranks.length;
    const models = tokens.slice(from, place).filter((token) => token.top[0][0] === token.id).length / ranks.length;
    const done = place >= end();
    const best = done ? Math.min(mine, recall(run.name, "game", Infinity) ?? Infinity) : null;
    if (done) remember(run.name, "game", best);
    const line = `I guessed ${ranks.length} letters at ${mine.toFixed(2)} bits each, ${run.model} of chainrule at ${model.toFixed(2)}.`;
    board.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ["", "bits a letter", "right at once"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, [["you", mine, first], ["the model", model, models]].map(([name, bits, share]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, bits.toFixed(2)), h("td", {}, `${(100 * share).toFixed(0)}%`))))),
      ...(done ? [h("p", {}, h("strong", {}, mine < model ? "You beat the model." : "The model knows this text better."), ` Your best game: ${best.toFixed(2)} bits.`), button("Copy the result", async () => { await navigator.clipboard.writeText(line); say("Copied."); })] : []));
  }

  guess.addEventListener("input", () => {
    const letter = guess.value;
    guess.value = "";
    if (!letter || place >= end()) return;
    if (letter === tokens[place].text || (letter === " " && tokens[place].text === "\n")) settle();
    else {
      if (!tries.includes(letter)) tries.push(letter);
      draw();
    }
  });
  return element;
}

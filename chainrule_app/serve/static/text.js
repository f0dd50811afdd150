// Texts: streamed symbols coloured by surprise, alternatives to branch to, and activations over the text.
import { button, card, field, h, job, linked, percent, post, recall, remember, say, seedField, select, slider, stepped, stream, tries } from "./dom.js";
import { compareView } from "./compare.js";
import { gameView } from "./game.js";
import { download, elsewhere, linkTo, ways } from "./share.js";

const STEPS = 8; // of the colours of surprise
const MOST = 6; // nats at which the colour is strongest
const LONGEST_INSPECTED = 400;

const colourOf = (nats) => `u${Math.min(STEPS, Math.round((STEPS * (nats ?? MOST)) / MOST))}`;

export function textView(run, runs) {
  const { level, reading, inside } = run.facts;
  const noun = { char: "character", byte: "byte", word: "word", bpe: "token" }[level];
  let tokens = recall(run.name, "tokens", []);
  let session = null;
  let history = [];
  let ended = false;
  let isDrawn = false; // the text is what the prompt, the options and the seed give

  // Controls.
  const prompt = h("textarea", { rows: 3, spellcheck: "false", autocomplete: "off", value: linked("prompt") ?? (linked("seed") === null ? recall(run.name, "prompt", "") : "") });
  const length = h("input", { type: "number", min: 1, max: 10000, value: linked("length") ?? recall(run.name, "length", level === "word" ? 60 : 300), inputmode: "numeric" });
  const temperature = slider("Temperature", { min: 0, max: 2, step: 0.05, value: linked("temperature") ?? recall(run.name, "temperature", 0.8) });
  const topK = h("input", { type: "number", min: 1, max: run.facts.symbols, placeholder: "all", value: linked("top_k") ?? "", inputmode: "numeric" });
  const topP = slider("Top-p", { min: 0.05, max: 1, step: 0.05, value: linked("top_p") ?? 1 });
  const seed = seedField();
  const write = button("Write", () => begin(), { class: "primary", title: "Ctrl+Enter" });
  const read = button("Read my text", () => readText());
  const stop = button("Stop", () => job.stop(), { disabled: true, title: "Escape" });
  const more = button("Continue", () => branch(tokens.map((token) => token.id)));
  const edit = button("Edit", () => { prompt.value = text(); prompt.focus(); prompt.setSelectionRange(prompt.value.length, prompt.value.length); });
  const undo = button("Undo", () => { job.stop(); ({ tokens, ended } = history.pop()); session = null; isDrawn = false; draw(); say("Back to the text before."); });
  const copy = button("Copy", async () => { await navigator.clipboard.writeText(text()); say("Copied."); });
  prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) begin(); });

  // Output.
  const page = h("div", { class: "page", role: "group", "aria-label": `Text, one item a ${noun}: arrow keys move, Enter lists alternatives` });
  const figures = h("p", { class: "figures muted" });
  const popover = h("div", { class: level === "word" || level === "bpe" ? "popover" : "popover narrow", role: "dialog", "aria-label": "Likeliest alternatives", hidden: true });
  const look = insideView(run, inside, () => tokens);
  const versions = h("details", { class: "versions", hidden: true });

  const text = () => tokens.map((token) => token.text).join("");
  const settings = () => ({
    run: run.name, max_tokens: Math.max(1, Math.floor(Number(length.value) || 1)), temperature: temperature.value,
    top_k: Number(topK.value) || null, top_p: topP.value < 1 ? topP.value : null, seed: seed.next(),
  });

  function begin() {
    keep();
    tokens = [];
    session = null;
    isDrawn = true;
    return go("playground/text", { ...settings(), prompt: prompt.value });
  }

  function readText(text = prompt.value) {
    if (!text) return say("Write or paste a text first.");
    keep();
    tokens = [];
    session = null;
    return go("playground/read", { run: run.name, text });
  }

  // Go on after symbols; of a model of lines, after those of the last line alone.
  function branch(symbols) {
    isDrawn = false;
    const lines = reading === "lines" ? tokens.slice(0, symbols.length - 1).findLastIndex((token) => token.text === "\n") + 1 : 0;
    return go("playground/text", { ...settings(), symbols: symbols.slice(lines), session });
  }

  function take(place, id) {
    const token = tokens[place];
    const chosen = token.top.find(([symbol]) => symbol === id);
    keep();
    close();
    tokens = tokens.slice(0, place);
    tokens.push({ ...token, id, label: chosen[1], text: "", nats: -Math.log(chosen[2]), drawn: true, branch: true });
    draw();
    return branch(tokens.map((other) => other.id));
  }

  function keep() {
    job.stop();
    isDrawn = false;
    if (tokens.length) history.push({ tokens, ended });
    history = history.slice(-20);
  }

  // Earlier texts: each with the place where it leaves the one above, and its surprise. Choosing one keeps the other.
  function listVersions() {
    versions.hidden = !history.length;
    const rows = history.map((version, index) => {
      const fork = version.tokens.findIndex((token, place) => token.id !== tokens[place]?.id);
      const rest = version.tokens.slice(Math.max(0, fork)).map((token) => token.text).join("").replace(/\s+/g, " ");
      const nats = version.tokens.reduce((sum, token) => sum + (token.nats ?? 0), 0) / version.tokens.length;
      const where = fork > 0 ? `from ${noun} ${fork + 1}` : fork ? "its beginning" : "another text";
      return h("li", {}, button([h("span", { class: "muted" }, `${where} · ${nats.toFixed(2)} nats a ${noun} `), rest.slice(0, 60) + (rest.length > 60 ? "…" : "")],
        () => { keep(); ({ tokens, ended } = history.splice(index, 1)[0]); session = null; draw(); say("This version again."); }));
    });
    versions.replaceChildren(h("summary", {}, rows.length === 1 ? "1 earlier version" : `${rows.length} earlier versions`), h("ul", {}, rows.reverse()));
  }

  async function go(path, body) {
    remember(run.name, "prompt", prompt.value);
    remember(run.name, "length", Number(length.value));
    remember(run.name, "temperature", temperature.value);
    ended = false;
    draw();
    say(path.endsWith("read") ? "Reading…" : "Writing…");
    const started = performance.now();
    const own = tokens;
    let drawn = 0;
    await job.run(async (signal) => {
      for await (const record of stream(path, body, signal)) {
        if (record.session) begun(record, own);
        else if (record.finish) ended = record.finish === "stop" && path.endsWith("text");
        else {
          own.push(record);
          drawn += record.drawn;
          if (own === tokens) page.append(element(record, own.length - 1));
        }
      }
      const rate = drawn / ((performance.now() - started) / 1000);
      say(drawn ? `Done: ${drawn} ${noun}s, ${rate.toFixed(0)} a second.` : `Read ${tokens.length} ${noun}s.`);
    }, { stop });
    if (own === tokens) finish();
  }

  // The first record: where the text goes on, and what the symbol before that adds to it.
  function begun(record, own) {
    session = record.session;
    if (!own.at(-1)?.branch || own.at(-1).text) return;
    own.at(-1).text = record.text;
    if (own === tokens) page.lastElementChild.replaceWith(element(own.at(-1), own.length - 1));
  }

  function finish() {
    const nats = tokens.reduce((sum, token) => sum + (token.nats ?? 0), 0);
    figures.textContent = tokens.length ? `${tokens.length} ${noun}s · ${nats.toFixed(1)} nats · ${(nats / tokens.length).toFixed(2)} a ${noun} · perplexity ${Math.exp(nats / tokens.length).toFixed(2)}` : "";
    more.disabled = !tokens.length || ended;
    edit.disabled = copy.disabled = !tokens.length;
    undo.disabled = !history.length;
    listVersions();
    page.firstElementChild?.setAttribute("tabindex", "0");
    remember(run.name, "tokens", tokens.slice(0, 2000));
    look.refresh();
  }

  function element(token, place) {
    const classes = ["token", colourOf(token.nats)];
    if (!token.drawn) classes.push("given");
    if (token.branch) classes.push("branch");
    if (token.text === "\n") classes.push("newline");
    return h("span", { class: classes.join(" "), role: "button", tabindex: "-1", "data-place": place, "aria-label": `${token.label}, ${(token.nats ?? 0).toFixed(2)} nats` }, token.text);
  }

  function draw() {
    page.replaceChildren(...tokens.map(element));
    if (!tokens.length) figures.textContent = "";
    finish();
  }

  // Alternatives: beside the symbol, or in a narrow window at its lower end.
  const narrow = () => innerWidth <= 760;
  let pinned = false;
  let leaving = 0;
  function open(target, focusInside = false) {
    clearTimeout(leaving);
    const token = tokens[target.dataset.place];
    if (!token) return;
    page.querySelector(".current")?.classList.remove("current");
    target.classList.add("current");
    const rows = token.top.map(([id, label, share]) => {
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = `${Math.max(100 * share, 0.5)}%`;
      return h("li", {}, button([h("span", { class: "name" }, label), h("span", { class: "track" }, bar), h("span", { class: "number" }, percent(share))],
        () => take(Number(target.dataset.place), id),
        { "aria-current": id === token.id ? "true" : null, "aria-label": `${label}, ${percent(share)}, ${id === token.id ? "write anew from here" : "branch here"}` }));
    });
    const here = token.top.some(([id]) => id === token.id);
    popover.replaceChildren(
      h("p", {}, h("code", {}, token.label), ` ${(token.nats ?? Infinity).toFixed(2)} nats · ${percent(Math.exp(-(token.nats ?? Infinity)))}`),
      h("ol", { class: "bars" }, rows),
      h("p", { class: "muted" }, here ? "Choose one to branch from here." : "It was none of the ten likeliest. Choose one to branch."));
    popover.hidden = false;
    if (narrow()) { // the list covers the lower part of the window
      const hidden = target.getBoundingClientRect().bottom + 12 - popover.getBoundingClientRect().top;
      if (hidden > 0) scrollBy(0, hidden);
    } else place(target);
    if (focusInside) popover.querySelector("button").focus();
  }

  function place(target) {
    const box = target.getBoundingClientRect();
    const size = popover.getBoundingClientRect();
    const below = box.bottom + size.height + 12 < innerHeight || box.top < size.height + 12;
    popover.style.left = `${Math.max(8, Math.min(box.left - 16, innerWidth - size.width - 8))}px`;
    popover.style.top = `${below ? box.bottom + 4 : box.top - size.height - 4}px`;
  }

  function close(back = false) {
    pinned = false;
    popover.hidden = true;
    const current = page.querySelector(".current");
    current?.classList.remove("current");
    if (back) current?.focus();
  }

  const leave = () => { clearTimeout(leaving); leaving = setTimeout(() => !pinned && close(), 250); };
  page.addEventListener("pointerover", (event) => { if (!pinned && !narrow() && event.pointerType === "mouse" && event.target.dataset.place) open(event.target); });
  page.addEventListener("pointerout", leave);
  popover.addEventListener("pointerenter", () => clearTimeout(leaving));
  popover.addEventListener("pointerleave", leave);
  page.addEventListener("click", (event) => { if (event.target.dataset.place) { open(event.target); pinned = true; } });
  page.addEventListener("focusin", (event) => {
    if (!event.target.dataset.place) return;
    page.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    event.target.setAttribute("tabindex", "0");
    if (event.target.matches(":focus-visible")) open(event.target);
    look.highlight(Number(event.target.dataset.place));
  });
  page.addEventListener("pointerover", (event) => event.target.dataset.place && look.highlight(Number(event.target.dataset.place)));
  page.addEventListener("keydown", (event) => {
    const spot = Number(event.target.dataset.place);
    const next = /Up|Down/.test(event.key) ? undefined : stepped(event.key, spot, tokens.length - 1); // up and down scroll
    if (next !== undefined) page.children[next].focus();
    else if (event.key === "Enter" || event.key === " ") { pinned = true; open(event.target, true); }
    else return;
    event.preventDefault();
  });
  popover.addEventListener("keydown", (event) => {
    const items = [...popover.querySelectorAll("button")];
    const next = stepped(event.key, items.indexOf(document.activeElement), items.length - 1);
    if (next === undefined) return;
    items[next].focus();
    event.preventDefault();
  });
  const outside = (event) => {
    if (!document.contains(popover)) return removeEventListener("pointerdown", outside);
    if (!popover.hidden && !popover.contains(event.target) && !page.contains(event.target)) close();
  };
  addEventListener("pointerdown", outside);
  const left = ({ relatedTarget: next }) => { if (next && !popover.contains(next) && !page.contains(next)) close(); };
  page.addEventListener("focusout", left);
  popover.addEventListener("focusout", left);
  popover.addEventListener("keyup", (event) => { if (event.key === "Escape") close(true); });
  page.addEventListener("keyup", (event) => { if (event.key === "Escape") close(); });

  const legend = h("div", { class: "legend", role: "group", "aria-label": `Colours: surprise from 0 to ${MOST} nats and more` }, h("span", {}, "surprise 0"),
    h("span", { class: "scale", "aria-hidden": "true" }, Array.from({ length: STEPS + 1 }, (_, step) => h("i", { class: `u${step}` }))), h("span", {}, `${MOST}+ nats`));
  const options = h("details", { class: "card options", open: innerWidth > 760 }, h("summary", {}, "Options"),
    field(`Length, ${noun}s`, length), temperature.element, topP.element, field("Top-k", topK), seed.element);
  const own = (text) => { prompt.value = text; return readText(); };
  const drawn = () => ({ length: Number(length.value), temperature: temperature.value, top_k: topK.value && Number(topK.value), top_p: topP.value < 1 ? topP.value : null, seed: Number(seed.input.value) });
  const codes = () => ways(run, "sample", { prompt: prompt.value, ...drawn() });
  const link = linkTo(run, () => isDrawn ? { prompt: prompt.value, ...drawn() } : { read: text() });
  draw();
  if (linked("read")) readText(linked("read"));
  else if (linked("prompt") !== null || linked("seed") !== null) begin();
  else if (!tokens.length && run.examples.length) readText(run.examples[0]);
  return h("div", { class: "columns" },
    h("div", {},
      card("", tries(run.examples, own), field("Prompt", prompt), h("div", { class: "buttons" }, write, stop, read, link)),
      card("", h("div", { class: "toolbar" }, legend, h("div", { class: "buttons small" }, more, edit, undo, copy)), page, figures, versions),
      look.element, compareView(run, runs, () => prompt.value || text(), colourOf),
      level === "char" && run.examples.length ? gameView(run) : null, elsewhere(run, codes), popover),
    options);
}

// Gates of a unit, or attention of a head, over the text.
function insideView(run, inside, tokensNow) {
  if (!inside.kind) return { element: null, refresh() {}, highlight() {} };
  const units = inside.kind === "units";
  const first = units ? 0 : 1; // units have the numbers of the weights, heads are counted like layers
  const layer = select(Array.from({ length: inside.layers }, (_, place) => [place, String(place + 1)]));
  const unit = h("input", { type: "number", min: first, max: inside.units - 1 + first, value: first, inputmode: "numeric" });
  const shown = select([]);
  const suggestions = h("div", { class: "buttons small" });
  const strip = h("div", { class: "page inside" });
  const canvas = h("canvas", { role: "img", class: "heat", "aria-label": "Map of the text, not drawn yet" });
  const note = h("p", { class: "muted" });
  let found = null;
  let tokens = [];

  async function load() {
    const shownTokens = tokens = tokensNow().slice(0, LONGEST_INSPECTED);
    found = null;
    if (!tokens.length || !element.open) return;
    unit.value = Math.max(first, Math.min(Math.floor(Number(unit.value)) || first, inside.units - 1 + first));
    const body = { run: run.name, symbols: tokens.map((token) => token.id), layer: Number(layer.value), unit: Number(unit.value) - first };
    try {
      const answer = await post("playground/inside", body);
      if (tokens !== shownTokens) return; // another text is asked for by now
      found = answer;
    } catch (error) {
      note.textContent = error.message;
      return;
    }
    note.textContent = tokensNow().length > tokens.length ? `The first ${LONGEST_INSPECTED} symbols are shown.` : "";
    if (units) {
      const chosen = shown.value;
      const names = Object.keys(found.values);
      shown.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      shown.value = names.includes(chosen) ? chosen : names.at(-1);
      suggestions.replaceChildren("Most active here: ", ...found.suggested.map((place) => button(String(place), () => { unit.value = place; load(); })));
    }
    paint();
  }

  function paint() {
    if (!found) return;
    const rows = units ? Object.values(found.values) : found.weights;
    const values = units ? found.values[shown.value] : null;
    const most = units ? Math.max(1, ...values.map(Math.abs)) : 1;
    strip.replaceChildren(...tokens.map((token, place) => {
      const span = h("span", { class: token.text === "\n" ? "token newline" : "token", title: units ? `${values[place].toFixed(3)}` : "" }, token.text);
      if (units) colour(span, values[place] / most);
      return span;
    }));
    if (!units) highlight(tokens.length - 1);
    heat(canvas, rows, units ? Object.keys(found.values) : [], tokens.length);
    canvas.setAttribute("aria-label", units ? `Unit ${unit.value} of layer ${Number(layer.value) + 1}: ${Object.keys(found.values).join(", ")} over the text` : `Attention of head ${unit.value}: a row for each prediction, a column for each symbol read`);
  }

  function highlight(place) {
    if (units || !found || place >= found.weights.length) return;
    const row = found.weights[place];
    [...strip.children].forEach((span, spot) => {
      colour(span, spot + 1 < row.length ? row[spot + 1] : 0);
      span.classList.toggle("current", spot === place);
    });
  }

  for (const control of [layer, unit]) control.addEventListener("change", load);
  shown.addEventListener("change", paint);
  const words = units
    ? "The text, coloured by what one unit did after reading each symbol; blue is negative, orange positive. Below, its gates side by side."
    : "Move over a symbol of the text above, or to it by keyboard: what its prediction attended to is coloured here. Below, all predictions as rows.";
  const element = h("details", { class: "card", ontoggle: load }, h("summary", {}, units ? "Look inside: gates of a unit" : "Look inside: attention of a head"),
    h("p", { class: "muted" }, words),
    h("div", { class: "row" }, field("Layer", layer), field(`${units ? "Unit" : "Head"}, ${first} to ${inside.units - 1 + first}`, unit), units ? field("Show", shown) : null),
    units ? suggestions : null, strip, h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Map, scrollable" }, canvas),
    h("div", { class: "buttons small save" }, button("PNG", () => download([canvas], `${run.name}-inside.png`), { "aria-label": "Download the map as PNG" })), note);
  return { element, refresh: load, highlight };
}

export function colour(element, value) {
  const strength = Math.min(1, Math.abs(value)) * 0.6;
  element.style.backgroundColor = value < 0 ? `rgba(64, 132, 244, ${strength})` : `rgba(236, 112, 20, ${strength})`;
}

function heat(canvas, rows, names, columns) {
  const wide = names.length ? 84 : 0;
  const room = (canvas.parentElement.clientWidth - wide) / columns;
  const cell = names.length ? [Math.max(3, Math.min(9, room)), 16] : Array(2).fill(Math.max(2, Math.min(6, room)));
  const scale = devicePixelRatio || 1;
  const width = wide + columns * cell[0];
  const height = rows.length * (cell[1] + (names.length ? 2 : 0));
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  const ink = getComputedStyle(document.body).color;
  context.scale(scale, scale);
  context.font = "11px system-ui, sans-serif";
  rows.forEach((row, line) => {
    const top = line * (cell[1] + (names.length ? 2 : 0));
    context.fillStyle = ink;
    if (names.length) context.fillText(names[line], 0, top + 12);
    const most = Math.max(1, ...row.map(Math.abs));
    const values = names.length ? row : row.slice(1); // the start symbol has no column
    values.forEach((value, column) => {
      const strength = names.length ? Math.min(1, Math.abs(value) / most) : Math.sqrt(value);
      context.fillStyle = value < 0 ? `rgba(64, 132, 244, ${strength})` : `rgba(236, 112, 20, ${strength})`;
      context.fillRect(wide + column * cell[0], top, cell[0], cell[1]);
    });
  });
}

// Answers to inputs: tags, labels, translations with their alignment, and forecasts.
import { bars, beamField, button, card, field, h, job, linked, percent, post, recall, remember, reveal, say, seedField, short, svg, ticks, tries } from "./dom.js";
import { elsewhere, linkTo, quoted, savable, ways } from "./share.js";
import { colour } from "./text.js";

// `options` are sent with the text; a link keeps them.
function asking(run, { label, verb, extra = [], options = () => ({}) }, answer) {
  const input = h("textarea", { rows: 3, value: linked("input") ?? recall(run.name, "input", run.examples[0] ?? "") });
  const results = h("div", { class: "results", "aria-live": "polite" });
  const go = () => {
    if (!input.value.trim()) return say("Write something first.");
    remember(run.name, "input", input.value);
    return job.run(async (signal) => {
      say("Working…");
      results.replaceChildren(...answer(await post("playground/answer", { run: run.name, text: input.value, ...options() }, signal)));
      if (shown) reveal(results);
      shown = true;
      say("");
    });
  };
  let shown = false; // of what the view opens with nothing is scrolled
  const own = (text) => { input.value = text; return go(); };
  const codes = () => {
    const lines = input.value.split("\n").filter((line) => line.trim());
    return ways(run, run.task, options(), { input: `printf '%s\\n' ${lines.map(quoted).join(" ")} | `, argument: " -", first: [JSON.stringify(lines)], body: { data: lines } });
  };
  if (input.value.trim()) go();
  input.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); });
  const link = linkTo(run, () => ({ input: input.value, ...options() }));
  return h("div", {}, card("", tries(run.examples, own), field(label, input), extra, h("div", { class: "buttons" }, button(verb, go, { class: "primary", title: "Ctrl+Enter" }), link)),
    results, elsewhere(run, codes));
}

export function tagView(run) {
  return asking(run, { label: "Sentences, one a line, words separated by blanks", verb: "Tag" }, ({ sentences }) => {
    const types = [...new Set(sentences.flatMap(({ spans, tags }) => spans ? spans.map(({ type }) => type) : tags))].sort();
    const kind = (type) => `kind k${types.indexOf(type) % 8}`;
    const shown = sentences.map(({ words, tags, probabilities, spans, nats }) => {
      const hint = (place) => `${tags[place]}, ${percent(probabilities[place])}`;
      const word = (place) => h("span", { class: "word", title: hint(place) }, words[place]);
      const parts = [];
      for (let place = 0; place < words.length; place++) {
        const span = spans?.find(({ start }) => start === place);
        if (span) {
          const inside = Array.from({ length: span.stop - span.start }, (_, step) => [step ? " " : null, word(place + step)]).flat();
          parts.push(h("mark", { class: kind(span.type) }, inside, h("small", {}, span.type)), " ");
          place = span.stop - 1;
        } else if (spans) parts.push(word(place), " ");
        else parts.push(h("mark", { class: kind(tags[place]), title: hint(place) }, words[place], h("small", {}, tags[place])), " ");
      }
      return h("li", {}, h("p", { class: "tagged" }, parts), h("p", { class: "muted" }, `${nats.toFixed(2)} nats; least sure word: ${percent(Math.min(...probabilities))}`));
    });
    return [card("", h("ul", { class: "plain" }, shown))];
  });
}

export function classifyView(run) {
  return asking(run, { label: "Text", verb: "Classify" }, ({ labels, tokens, attention }) => {
    const most = attention && Math.max(...attention);
    const shaded = attention && h("p", { class: "tagged" }, tokens.map((token, place) => {
      const word = h("span", { class: "word", title: percent(attention[place]) }, token);
      colour(word, attention[place] / most);
      return [word, " "];
    }).flat());
    return [card("Labels", bars(labels.slice(0, 20), 1)), attention && card("Attention", h("p", { class: "muted" }, "How much of each word the pooling used. It does not explain the label: what was read at a word depends on the whole text."), shaded)].filter(Boolean);
  });
}

export function translateView(run) {
  const beam = beamField();
  const options = () => ({ beam: Number(beam.value) });
  return asking(run, { label: "Sentences, one a line", verb: "Translate", extra: [h("div", { class: "row" }, field("Beam", beam))], options }, ({ sentences }) =>
    sentences.map(({ translation, nats, unknown, read, written, weights }) =>
      card("", h("p", { class: "answer" }, translation || "(empty)"),
        unknown.length > 0 && h("p", { class: "wrong" }, `Never seen in training, so read as unknown: ${unknown.join(", ")}`),
        h("p", { class: "muted" }, `${nats.toFixed(2)} nats`), weights && alignment(read, written, weights))));
}

function alignment(read, written, weights) {
  const cells = (row, name) => row.map((weight, place) => {
    const cell = h("td", { title: `${name} ← ${read[place]}: ${percent(weight)}` }, h("span", { class: "hidden" }, percent(weight)));
    colour(cell, weight * 1.3);
    return cell;
  });
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", { class: "alignment" },
    h("caption", { class: "muted" }, "Alignment: how much each word written attended to each word read"),
    h("thead", {}, h("tr", {}, h("td"), read.map((name) => h("th", { scope: "col" }, h("span", {}, name))))),
    h("tbody", {}, written.map((name, place) => h("tr", {}, h("th", { scope: "row" }, name), cells(weights[place], name))))));
}

export function forecastView(run) {
  const { horizon, columns, own } = run.facts;
  const seed = seedField();
  const back = h("input", { type: "number", min: 0, value: linked("back") ?? 0, inputmode: "numeric" });
  const pasted = h("textarea", { rows: 4, placeholder: `${columns.join(",")}\n…`, value: linked("series") ?? recall(run.name, "series", ""), spellcheck: "false" });
  const results = h("div", { class: "results", "aria-live": "polite" });
  const forecast = (text) => job.run(async (signal) => {
    say("Drawing paths…");
    remember(run.name, "series", pasted.value);
    const found = await post("playground/forecast", { run: run.name, text, back: Number(back.value) || 0, seed: seed.next() }, signal);
    series = text;
    results.replaceChildren(...found.series.map(fan));
    if (shown) reveal(results);
    shown = true;
    say("");
  });
  let shown = false;
  let series = ""; // that is shown; empty for the run's own
  const paste = () => pasted.value.trim() ? forecast(pasted.value) : say("Paste a series first.");
  if (linked("series") || own) forecast(linked("series") ?? "");
  return h("div", {},
    own && card("The run's own series", h("p", { class: "muted" }, `The last ${horizon} rows are forecast from those before them, and compared with what came.`),
      h("div", { class: "row" }, field("Rows to go back", back), seed.element), h("div", { class: "buttons" }, button("Forecast", () => forecast(""), { class: "primary" }), linkTo(run, () => ({ back: back.value, seed: seed.input.value, series })))),
    results,
    card("Another series", field(`Comma-separated values with the columns ${columns.join(", ")}`, pasted), h("div", { class: "buttons" }, button("Forecast what follows", paste))),
    elsewhere(run, () => ways(run, "forecast", { seed: Number(seed.input.value) })));
}

function fan({ name, past, came, quantiles: [low, middle, high], times }) {
  const [wide, tall, left, bottom] = innerWidth > 760 ? [960, 320, 56, 24] : [330, 240, 44, 24];
  const known = [...past, ...came, ...low, ...high].filter((value) => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const x = (place) => left + (wide - left - 8) * place / (past.length + middle.length - 1);
  const y = (value) => 8 + (tall - bottom - 16) * (1 - (value - least) / (most - least || 1));
  const path = (values, from) => values.map((value, place) => value === null ? "" : `${place && values[place - 1] !== null ? "L" : "M"}${x(from + place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const from = past.length;
  const area = `${path(high, from)}${low.map((value, place) => `L${x(from + place).toFixed(1)} ${y(value).toFixed(1)}`).reverse().join("")}Z`;
  const chart = svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "chart", "aria-label": `${name}: ${past.length} rows of history, then the forecast of ${middle.length}: median from ${short(middle[0])} to ${short(middle.at(-1))}` },
    ticks(least, most).map((value) => [svg("line", { class: "grid", x1: left, x2: wide - 8, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value))]).flat(),
    svg("path", { class: "fan", d: area }), svg("path", { class: "past", d: path(past, 0) }), svg("path", { class: "median", d: path([past.at(-1), ...middle], from - 1) }),
    came.length ? svg("path", { class: "came", d: path([past.at(-1), ...came], from - 1) }) : null,
    svg("line", { class: "now", x1: x(from - 1), x2: x(from - 1), y1: 8, y2: tall - bottom }),
    times.length ? [svg("text", { x: Math.min(x(from), wide - 16 - 7 * times.at(-1).length), y: tall - 6, "text-anchor": "end" }, times[0]), svg("text", { x: wide - 8, y: tall - 6, "text-anchor": "end" }, times.at(-1))] : null);
  const key = h("p", { class: "legend muted" }, [["past", "history"], ["median", "median"], ["fan", "10% to 90%"], ...(came.length ? [["came", "what came"]] : [])].map(([kind, word]) => h("span", {}, h("i", { class: `key ${kind}` }), word)));
  const rows = middle.map((value, place) => h("tr", {}, [times[place] ?? place + 1, low[place], value, high[place], came[place] ?? ""].map((cell) => h("td", {}, typeof cell === "number" ? short(cell) : cell))));
  const table = h("details", {}, h("summary", {}, "Figures"), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, h("thead", {}, h("tr", {}, ["row", "10%", "median", "90%", "came"].map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows))));
  const told = h("p", { class: "muted" }, "Move over the chart to read its figures.");
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const spot = Math.round(((event.clientX - box.left) * wide / box.width - left) * (from + middle.length - 1) / (wide - left - 8));
    const step = spot - from;
    if (step < 0) told.textContent = past[spot] === undefined ? "" : `${-step} ${step === -1 ? "row" : "rows"} before the forecast: ${past[spot] === null ? "no value" : short(past[spot])}`;
    else if (step < middle.length) told.textContent = `${times[step] ?? `row ${step + 1}`}: median ${short(middle[step])}, 10% to 90%: ${short(low[step])} to ${short(high[step])}${came[step] === undefined || came[step] === null ? "" : `; came: ${short(came[step])}`}`;
  });
  return card(name, savable(chart, name), key, told, table);
}

// Answers to inputs: tags, labels, translations with their alignment, captions and forecasts.
import { bars, button, card, curl, elsewhere, field, fromBase64, h, job, linked, linkTo, percent, post, quoted, recall, remember, reveal, say, seedField, select, svg, toBase64, tries } from "./dom.js";
import { colour } from "./text.js";

function asking(run, { title, label, verb, rows = 3, placeholder = "", extra = [] }, answer) {
  const input = h("textarea", { rows, placeholder, value: linked("input") ?? recall(run.name, "input", run.examples[0] ?? "") });
  const results = h("div", { class: "results", "aria-live": "polite" });
  const go = () => {
    if (!input.value.trim()) return say("Write something first.");
    remember(run.name, "input", input.value);
    return job.run(async (signal) => {
      say("Working…");
      results.replaceChildren(...(await answer(input.value, signal)));
      if (shown) reveal(results);
      shown = true;
      say("");
    });
  };
  let shown = false; // of what the view opens with nothing is scrolled
  const own = (text) => { input.value = text; return go(); };
  const ways = () => {
    const lines = input.value.split("\n").filter((line) => line.trim());
    return {
      command: `printf '%s\\n' ${lines.map(quoted).join(" ")} | chainrule ${run.task} runs/${run.name} -`,
      Python: `run = chainrule.load("runs/${run.name}")\nrun.${run.task}(${JSON.stringify(lines)})`,
      curl: curl(run, run.task, { data: lines }),
    };
  };
  if (input.value.trim()) go();
  input.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go(); });
  const link = linkTo(run, () => ({ input: input.value }));
  return h("div", {}, card(title, tries(run.examples, own), field(label, input), extra, h("div", { class: "buttons" }, button(verb, go, { class: "primary", title: "Ctrl+Enter" }), link)),
    results, elsewhere(ways));
}

export function tagView(run) {
  return asking(run, { title: "", label: "Sentences, one a line, words separated by blanks", verb: "Tag" }, async (text, signal) => {
    const { sentences } = await post("playground/answer", { run: run.name, text }, signal);
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
  return asking(run, { title: "", label: "Text", verb: "Classify" }, async (text, signal) => {
    const { labels, tokens, attention } = await post("playground/answer", { run: run.name, text }, signal);
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
  const beam = select([[1, "1, greedy"], [4, "4"], [8, "8"]]);
  beam.value = 4;
  return asking(run, { title: "", label: "Sentences, one a line", verb: "Translate", extra: [h("div", { class: "row" }, field("Beam", beam))] }, async (text, signal) => {
    const { sentences } = await post("playground/answer", { run: run.name, text, beam: Number(beam.value) }, signal);
    return sentences.map(({ translation, nats, unknown, read, written, weights }) =>
      card("", h("p", { class: "answer" }, translation || "(empty)"),
        unknown.length > 0 && h("p", { class: "wrong" }, `Never seen in training, so read as unknown: ${unknown.join(", ")}`),
        h("p", { class: "muted" }, `${nats.toFixed(2)} nats`), weights && alignment(read, written, weights)));
  });
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

// An image as the bytes of a PNG file of at most 512 pixels a side: models here read fewer.
async function shrunk(file) {
  const bitmap = await createImageBitmap(file).catch(() => { throw new Error("This file is no image that the browser can read."); });
  const share = Math.min(1, 512 / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", { width: Math.round(bitmap.width * share), height: Math.round(bitmap.height * share) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  return new Uint8Array(await blob.arrayBuffer());
}

function uploading(run, verb, show, pad = null) {
  const file = h("input", { type: "file", accept: "image/*" });
  const preview = h("img", { alt: "The image that you chose", class: "preview", hidden: true });
  const results = h("div", { class: "results", "aria-live": "polite" });
  const ask = (blob, visible) => job.run(async (signal) => {
    if (visible) {
      URL.revokeObjectURL(preview.src);
      preview.src = URL.createObjectURL(blob);
      preview.hidden = false;
    }
    say("Working…");
    const image = toBase64(await shrunk(blob));
    results.replaceChildren(show(await post("playground/answer-image", { run: run.name, image }, signal)));
    say("");
  });
  const asTrained = verb === "classify" ? "  # of the size of the training images" : "";
  const ways = () => ({
    command: `chainrule ${verb} runs/${run.name} image.png${asTrained}`,
    Python: `run = chainrule.load("runs/${run.name}")\nrun.${verb}("image.png")${asTrained}`,
    curl: `base64 -w 0 image.png | sed 's/.*/{"run": "${run.name}", "image": "&"}/' |\n  curl ${location.origin}/playground/answer-image --json @-`,
  });
  const own = (url) => ask(new Blob([fromBase64(url.split(",")[1])], { type: "image/png" }), true);
  file.addEventListener("change", () => ask(file.files[0], true));
  if (run.examples.length) own(run.examples[0]);
  const examples = tries(run.examples, own, (url, place) => h("img", { src: url, alt: `held-out image ${place + 1}` }));
  return h("div", {}, card("", examples, field(`Image file to ${verb}`, file), preview), pad?.(ask), results, elsewhere(ways));
}

export const classifyImageView = (run) => uploading(run, "classify", ({ labels, inverted }) =>
  card("Labels", inverted && h("p", { class: "muted" }, "Light and dark were exchanged, as the training images have them."), bars(labels.slice(0, 20), 1)), (ask) => drawingPad(run, ask));

// A canvas to draw on: what is drawn is classified as it is drawn.
function drawingPad(run, ask) {
  const side = 280;
  const canvas = h("canvas", { width: side, height: side, class: "pad", role: "img", tabindex: "0", "aria-label": "Canvas to draw on with the pointer" });
  const context = canvas.getContext("2d");
  const clear = () => { context.fillStyle = "black"; context.fillRect(0, 0, side, side); };
  const classify = () => canvas.toBlob((blob) => ask(blob, false), "image/png");
  let last = null;
  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * side / box.width, (event.clientY - box.top) * side / box.height];
  };
  const line = (from, to) => {
    Object.assign(context, { strokeStyle: "white", lineWidth: side / 9, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); last = where(event); line(last, last); event.preventDefault(); });
  canvas.addEventListener("pointermove", (event) => {
    if (!last) return;
    const next = where(event);
    line(last, next);
    last = next;
  });
  canvas.addEventListener("pointerup", () => { last = null; classify(); });
  clear();
  return card("Draw one", h("p", { class: "muted" }, "Large and in the middle, as the held-out images are."), canvas, h("div", { class: "buttons" }, button("Clear", clear)));
}

export const captionView = (run) => uploading(run, "caption", ({ caption }) => card("Caption", h("p", { class: "answer" }, caption || "(empty)")));

export function forecastView(run) {
  const { horizon, columns, own } = run.facts;
  const seed = seedField();
  const back = h("input", { type: "number", min: 0, value: linked("back") ?? 0, inputmode: "numeric" });
  const pasted = h("textarea", { rows: 4, placeholder: `${columns.join(",")}\n…`, value: recall(run.name, "series", ""), spellcheck: "false" });
  const ways = () => ({
    command: `chainrule forecast runs/${run.name} --seed ${seed.input.value}`,
    Python: `run = chainrule.load("runs/${run.name}")\nrun.forecast(seed=${seed.input.value})`,
    curl: curl(run, "forecast", { seed: Number(seed.input.value) }),
  });
  const results = h("div", { class: "results", "aria-live": "polite" });
  const forecast = (text) => job.run(async (signal) => {
    say("Drawing paths…");
    remember(run.name, "series", pasted.value);
    const found = await post("playground/forecast", { run: run.name, text, back: Number(back.value) || 0, seed: seed.next() }, signal);
    results.replaceChildren(...found.series.map(fan));
    if (shown) reveal(results);
    shown = true;
    say("");
  });
  let shown = false;
  const paste = () => pasted.value.trim() ? forecast(pasted.value) : say("Paste a series first.");
  if (own) forecast("");
  return h("div", {},
    own && card("The run's own series", h("p", { class: "muted" }, `The last ${horizon} rows are forecast from those before them, and compared with what came.`),
      h("div", { class: "row" }, field("Rows to go back", back), seed.element), h("div", { class: "buttons" }, button("Forecast", () => forecast(""), { class: "primary" }), linkTo(run, () => ({ back: back.value, seed: seed.input.value })))),
    results,
    card("Another series", field(`Comma-separated values with the columns ${columns.join(", ")}`, pasted), h("div", { class: "buttons" }, button("Forecast what follows", paste))),
    elsewhere(ways));
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
  const ticks = Array.from({ length: 5 }, (_, step) => least + (most - least) * step / 4);
  const format = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const chart = svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "chart", "aria-label": `${name}: ${past.length} rows of history, then the forecast of ${middle.length}: median from ${format(middle[0])} to ${format(middle.at(-1))}` },
    ticks.map((value) => [svg("line", { class: "grid", x1: left, x2: wide - 8, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value))]).flat(),
    svg("path", { class: "fan", d: area }), svg("path", { class: "past", d: path(past, 0) }), svg("path", { class: "median", d: path([past.at(-1), ...middle], from - 1) }),
    came.length ? svg("path", { class: "came", d: path([past.at(-1), ...came], from - 1) }) : null,
    svg("line", { class: "now", x1: x(from - 1), x2: x(from - 1), y1: 8, y2: tall - bottom }),
    times.length ? [svg("text", { x: x(from), y: tall - 6, "text-anchor": "end" }, times[0]), svg("text", { x: wide - 8, y: tall - 6, "text-anchor": "end" }, times.at(-1))] : null);
  const key = h("p", { class: "legend muted" }, [["past", "history"], ["median", "median"], ["fan", "10% to 90%"], ...(came.length ? [["came", "what came"]] : [])].map(([kind, word]) => h("span", {}, h("i", { class: `key ${kind}` }), word)));
  const rows = middle.map((value, place) => h("tr", {}, [times[place] ?? place + 1, low[place], value, high[place], came[place] ?? ""].map((cell) => h("td", {}, typeof cell === "number" ? format(cell) : cell))));
  const table = h("details", {}, h("summary", {}, "Figures"), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, h("thead", {}, h("tr", {}, ["row", "10%", "median", "90%", "came"].map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows))));
  const told = h("p", { class: "muted" }, "Move over the chart to read its figures.");
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const spot = Math.round(((event.clientX - box.left) * wide / box.width - left) * (from + middle.length - 1) / (wide - left - 8));
    const step = spot - from;
    if (step < 0) told.textContent = past[spot] === undefined ? "" : `${-step} ${step === -1 ? "row" : "rows"} before the forecast: ${past[spot] === null ? "no value" : format(past[spot])}`;
    else if (step < middle.length) told.textContent = `${times[step] ?? `row ${step + 1}`}: median ${format(middle[step])}, 10% to 90%: ${format(low[step])} to ${format(high[step])}${came[step] === undefined || came[step] === null ? "" : `; came: ${format(came[step])}`}`;
  });
  return card(name, chart, key, told, table);
}

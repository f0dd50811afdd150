// Latent spaces: sliders move a code, and the image, the line or the row that it decodes to follows.
import { button, card, field, fromBase64, h, job, percent, post, recall, remember, say, slider } from "./dom.js";
import { lastly, paint } from "./image.js";
import { distribution, rowsTable } from "./table.js";

const BETWEEN = 9; // lines from one to another, both included

// For each task: where what is decoded is shown, how, and how a held-out example is shown beside it.
const SHOWN = {
  image({ height, width, ...facts }) {
    const shape = { height, width, ...facts };
    const all = new Uint8Array(height * width).fill(1);
    const canvas = h("canvas", { class: "pixels editor", role: "img", "aria-label": "Image of the code" });
    const original = h("canvas", { class: "pixels small", role: "img", "aria-label": "The held-out image that was encoded" });
    const beside = h("figure", { hidden: true }, original, h("figcaption", { class: "muted" }, "encoded image"));
    const put = (target, { pixels }) => paint(target, lastly(fromBase64(pixels), shape), all, shape);
    return {
      element: h("div", { class: "row" }, h("div", { class: "frame" }, canvas), beside),
      show: (found) => put(canvas, found),
      encoded(found) {
        beside.hidden = !found;
        if (found) put(original, found);
      },
    };
  },
  text() {
    const line = h("p", { class: "answer", "aria-live": "polite" });
    const own = h("p", { class: "muted" });
    return {
      element: h("div", {}, line, own),
      show: ({ text }) => { line.textContent = text || "(empty)"; },
      encoded: (found) => { own.textContent = found ? `Encoded: ${found.text}` : ""; },
    };
  },
  table() {
    const cards = h("div", { class: "cards" });
    const rows = h("div", {});
    const own = h("p", { class: "muted" });
    return {
      element: own,
      below: h("div", {}, card("Columns given the code", cards), card("Rows drawn from the code", rows)),
      show(found) {
        cards.replaceChildren(...found.columns.map(distribution));
        rows.replaceChildren(rowsTable(found.rows, found.columns.map(({ name }) => name)));
      },
      encoded: (found) => { own.textContent = found ? `Encoded: ${Object.values(found.row).map((cell) => cell || "(missing)").join(", ")}` : ""; },
    };
  },
};

const NOUNS = { image: "image", text: "line", table: "row" };

export function latentView(run) {
  const { dimensions, low, high, start, examples } = run.facts;
  const noun = NOUNS[run.task];
  const shown = SHOWN[run.task](run.facts);
  let code = start;
  let busy = false;
  let again = false;
  let example = 0;

  async function draw() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        shown.show(await post("playground/decode", { run: run.name, code }));
      } while (again);
    } catch (error) {
      say(error.message);
    }
    busy = false;
  }

  const sliders = dimensions.map((dimension, place) => slider(`z${dimension}`, { min: low[place], max: high[place], step: 0.01, value: start[dimension] }, () => {
    code = code.with(dimension, sliders[place].value);
    draw();
  }));
  const set = (next, found = null) => {
    code = next;
    sliders.forEach((one, place) => { one.value = code[dimensions[place]]; });
    shown.encoded(found);
    return draw();
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  const random = () => set(dimensions.reduce((next, dimension, place) => next.with(dimension, (low[place] + high[place]) / 2 + normal() * (high[place] - low[place]) / 6), start));
  const encode = () => job.run(async (signal) => {
    const found = await post("playground/encode-example", { run: run.name, number: example++ % examples }, signal);
    return set(found.code, found);
  });

  draw();
  return h("div", {}, card("Latent space",
    h("p", { class: "muted" }, `Each slider moves one number of the code, those most in use first, and the ${noun} follows.`),
    h("div", { class: run.task === "image" ? "editing" : "" },
      shown.element,
      h("div", {}, h("div", { class: "buttons" }, button("Random code", random, { class: "primary" }), button("Centre", () => set(start)), examples > 0 && button(`Held-out ${noun}`, encode)),
        h("div", { class: "sliders" }, sliders.map((one) => one.element))))),
    shown.below, run.task === "text" && linesView(run, set));
}

// Lines of the user's own: one is encoded, or those between two are shown.
function linesView(run, set) {
  const inputs = ["first", "last"].map((name) => h("input", { type: "text", maxlength: 4096, value: recall(run.name, name, "") }));
  const list = h("ol", { class: "plain", "aria-live": "polite" });
  const lines = () => inputs.map(({ value }) => value.trim());
  const encoded = async (text, signal) => (await post("playground/encode-text", { run: run.name, text }, signal)).code;

  const go = (number, work) => {
    if (lines().slice(0, number).includes("")) return say(number > 1 ? "Write two lines first." : "Write a line first.");
    ["first", "last"].forEach((name, place) => remember(run.name, name, inputs[place].value));
    return job.run(work);
  };
  const encode = () => go(1, async (signal) => set(await encoded(lines()[0], signal), { text: lines()[0] }));
  const between = () => go(2, async (signal) => {
    const [from, to] = [await encoded(lines()[0], signal), await encoded(lines()[1], signal)];
    list.replaceChildren();
    for (let step = 0; step < BETWEEN; step++) {
      const share = step / (BETWEEN - 1);
      const code = from.map((value, place) => value + share * (to[place] - value));
      const { text } = await post("playground/decode", { run: run.name, code }, signal);
      list.append(h("li", {}, text || "(empty)", " ", h("small", { class: "muted" }, percent(share))));
    }
  });
  return card("Your own lines", field("A line", inputs[0]), field("Another line", inputs[1]),
    h("div", { class: "buttons" }, button("Encode the first", encode), button("Show the lines between", between)), list);
}

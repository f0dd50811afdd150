// Latent spaces: sliders move a code, and the image that it decodes to follows.
import { button, card, fromBase64, h, job, linked, post, say, slider } from "./dom.js";
import { lastly, paint } from "./image.js";
import { download, elsewhere, linkTo, ways } from "./share.js";

// Where the image of the code is shown, and the held-out image that was encoded beside it.
function shownImages({ height, width, ...facts }) {
  const shape = { height, width, ...facts };
  const all = new Uint8Array(height * width).fill(1);
  const canvas = h("canvas", { class: "pixels editor", role: "img", "aria-label": "Image of the code" });
  const original = h("canvas", { class: "pixels small", role: "img", "aria-label": "The held-out image that was encoded" });
  const beside = h("figure", { hidden: true }, original, h("figcaption", { class: "muted" }, "encoded image"));
  const put = (target, { pixels }) => paint(target, lastly(fromBase64(pixels), shape), all, shape);
  return {
    canvas,
    element: h("div", { class: "row" }, h("div", { class: "frame" }, canvas), beside),
    show: (found) => put(canvas, found),
    encoded(found) {
      beside.hidden = !found;
      if (found) put(original, found);
    },
  };
}

export function latentView(run) {
  const { dimensions, low, high, start, examples } = run.facts;
  const shown = shownImages(run.facts);
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
      say(error.message, { wrong: true });
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

  const restored = JSON.parse(linked("code") ?? "null");
  if (restored?.length === start.length) set(restored);
  else draw();
  const link = linkTo(run, () => ({ code: JSON.stringify(code) }));
  return h("div", {}, card("Latent space",
    h("p", { class: "muted" }, "Each slider moves one number of the code, those most in use first, and the image follows."),
    h("div", { class: "editing" },
      shown.element,
      h("div", {}, h("div", { class: "buttons" }, button("Random code", random, { class: "primary" }), button("Centre", () => set(start)), examples > 0 && button("Held-out image", encode), button("Download", () => download([shown.canvas], `${run.name}.png`)), link),
        h("div", { class: "sliders" }, sliders.map((one) => one.element))))), elsewhere(run, () => ways(run, "sample", { n: 4, seed: 1 })));
}

// Images: drawn pixel by pixel, and completed where they were erased.
import { button, card, field, fromBase64, h, job, linked, post, say, seedField, select, slider, stream, toBase64 } from "./dom.js";
import { download, elsewhere, linkTo, ways } from "./share.js";

const EMPTY = [128, 128, 128, 60]; // of a pixel that is not drawn yet

// An image on a canvas, channels last, of bytes; `known` tells which pixels there are.
export function paint(canvas, pixels, known, { channels, height, width }) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const data = context.createImageData(width, height);
  for (let place = 0; place < height * width; place++) {
    const colours = known[place] ? [0, 1, 2].map((channel) => pixels[place * channels + (channels === 3 ? channel : 0)]) : EMPTY;
    data.data.set([colours[0], colours[1], colours[2], known[place] ? 255 : EMPTY[3]], 4 * place);
  }
  context.putImageData(data, 0, 0);
}

const planes = (pixels, { channels, height, width }) => {
  const size = height * width;
  return Uint8Array.from({ length: pixels.length }, (_, place) => pixels[(place % size) * channels + Math.floor(place / size)]);
};

export const lastly = (pixels, { channels, height, width }) => {
  const size = height * width;
  return Uint8Array.from({ length: pixels.length }, (_, place) => pixels[(place % channels) * size + Math.floor(place / channels)]);
};

// An image and what is known of it in the address: as a PNG file, where what is not known is transparent.
function urlOf(pixels, known, shape) {
  const canvas = h("canvas");
  paint(canvas, pixels, known, shape);
  return canvas.toDataURL("image/png").split(",")[1];
}

// The pixels of an image file as the model has them, and which of them are known.
async function pixelsOf(file, { channels, height, width }, { ground = "transparent", ...options } = {}) {
  const bitmap = await createImageBitmap(file, options);
  const scratch = h("canvas", { width, height }).getContext("2d");
  scratch.fillStyle = ground;
  scratch.fillRect(0, 0, width, height);
  scratch.drawImage(bitmap, 0, 0);
  const { data } = scratch.getImageData(0, 0, width, height);
  return {
    known: Uint8Array.from({ length: height * width }, (_, place) => data[4 * place + 3] === 255),
    pixels: Uint8Array.from({ length: height * width * channels }, (_, place) => channels === 3
      ? data[4 * Math.floor(place / 3) + (place % 3)]
      : Math.round(0.299 * data[4 * place] + 0.587 * data[4 * place + 1] + 0.114 * data[4 * place + 2])),
  };
}

export function imageView(run) {
  const shape = run.facts;
  const { channels, height, width, labels } = shape;
  const size = height * width;
  const number = select([[1, "1"], [4, "4"], [8, "8"], [16, "16"]]);
  number.value = linked("n") ?? 4;
  const label = labels && select(labels.map((name, place) => [place, name]));
  const temperature = slider("Temperature", { min: 0, max: 2, step: 0.05, value: linked("temperature") ?? 1 });
  if (label && linked("label")) label.value = linked("label");
  const seed = seedField();
  const stop = button("Stop", () => job.stop(), { disabled: true, title: "Escape" });
  const grid = h("div", { class: "images", role: "group", "aria-label": "Images drawn" });
  const editor = editorView(run, shape, draw, (number) => { if (label) label.value = number; });

  let completed = null; // the image that the drawn ones complete

  async function draw(given = null) {
    completed = given && { pixels: given.pixels.slice(), known: given.known.slice() };
    const n = Number(number.value);
    const known = given ? given.known : new Uint8Array(size);
    const images = Array.from({ length: n }, () => ({ pixels: given ? given.pixels.slice() : new Uint8Array(size * channels), known: known.slice() }));
    const tiles = images.map((image, place) => {
      const canvas = h("canvas", { class: "pixels" });
      const tile = h("button", { type: "button", class: "tile", title: "Edit this image", "aria-label": `Image ${place + 1}: edit it`, onclick: () => editor.load(image.pixels) }, canvas);
      paint(canvas, image.pixels, image.known, shape);
      return { canvas, tile };
    });
    grid.replaceChildren(...tiles.map(({ tile }) => tile));
    grid.className = `images of${n}`;
    kept.disabled = false;
    const erased = known.reduce((sum, there) => sum + 1 - there, 0);
    say(given ? `Completing ${erased} of ${size} pixels…` : "Drawing…");
    const body = {
      run: run.name, n, seed: seed.next(), temperature: temperature.value, label: label ? Number(label.value) : null,
      pixels: given ? toBase64(planes(given.pixels, shape)) : "", known: given ? toBase64(known) : "",
    };
    const started = performance.now();
    await job.run(async (signal) => {
      for await (const record of stream("playground/draw", body, signal)) {
        if (record.finish) break;
        const values = fromBase64(record.values);
        const count = values.length / n;
        images.forEach((image, row) => {
          for (let place = 0; place < count; place++) {
            const element = record.from + place;
            const pixel = Math.floor(element / channels);
            image.pixels[element] = values[row * count + place];
            if (element % channels === channels - 1) image.known[pixel] = 1;
          }
          paint(tiles[row].canvas, image.pixels, image.known, shape);
        });
      }
      const seconds = (performance.now() - started) / 1000;
      say(`${given ? "Completed" : "Drew"} ${n} image${n > 1 ? "s" : ""} in ${seconds.toFixed(1)} s. Choose one to edit it.`);
    }, { stop });
  }

  const kept = button("Download", () => download([...grid.querySelectorAll("canvas")], `${run.name}.png`), { disabled: true });
  const link = linkTo(run, () => ({ n: number.value, label: label?.value ?? null, temperature: temperature.value, seed: seed.input.value, completed: completed && urlOf(completed.pixels, completed.known, shape) }));
  const codes = () => ways(run, "sample", { n: Number(number.value), label: label ? labels[label.value] : null, temperature: temperature.value, seed: Number(seed.input.value) });
  if (linked("completed")) editor.restore(linked("completed")).then(draw);
  else if (linked("seed") !== null) queueMicrotask(() => draw());
  const options = h("details", { class: "card options", open: innerWidth > 760 }, h("summary", {}, "Options"),
    field("Images", number), label && field("Label of the images", label), temperature.element, seed.element);
  const order = channels > 1 ? "Pixels are drawn row by row from the top left, in each pixel red before green before blue." : "Pixels are drawn row by row from the top left.";
  return h("div", { class: "columns" },
    h("div", {},
      card("Draw", h("p", { class: "muted" }, order), h("div", { class: "buttons" }, button("Draw", () => draw(), { class: "primary" }), stop, kept, link), grid),
      editor.element, elsewhere(run, codes)),
    options);
}

// An image that the pointer or the keyboard erases or paints.
function editorView(run, shape, complete, setLabel) {
  const { channels, height, width, examples } = shape;
  const size = height * width;
  let pixels = new Uint8Array(size * channels);
  let known = new Uint8Array(size);
  let example = 0;
  let cursor = [Math.floor(height / 2), Math.floor(width / 2)];
  const canvas = h("canvas", { class: "pixels editor", tabindex: "0", role: "img", "aria-label": "Image to complete: the pointer erases or paints; arrow keys move, Space applies the brush" });
  const marker = h("span", { class: "marker", "aria-hidden": "true", hidden: true });
  const tool = select([["erase", "Erase"], ["light", "Paint light"], ["dark", "Paint dark"]]);
  const brush = slider("Brush", { min: 1, max: Math.max(2, Math.floor(width / 3)), step: 1, value: Math.max(1, Math.floor(width / 7)), digits: 0 });
  const told = h("p", { class: "muted" });
  const file = h("input", { type: "file", accept: "image/*" });

  function show() {
    paint(canvas, pixels, known, shape);
    const erased = known.reduce((sum, there) => sum + 1 - there, 0);
    const first = known.indexOf(0);
    const after = first < 0 ? 0 : known.subarray(first).reduce((sum, there) => sum + there, 0);
    told.textContent = erased === 0
      ? "Nothing is erased yet: erase a part, and the model draws it anew."
      : `${erased} of ${size} pixels are erased. Each is drawn given all pixels above it and to its left, kept or drawn.` +
        (after ? ` The ${after} kept pixels that come later stay as they are; they inform only what is drawn after them.` : " All kept pixels come first, so each is drawn given all of them.");
  }

  function apply(row, column) {
    const reach = (brush.value - 1) / 2;
    for (let y = Math.ceil(row - reach); y <= row + reach; y++) {
      for (let x = Math.ceil(column - reach); x <= column + reach; x++) {
        if (y < 0 || x < 0 || y >= height || x >= width) continue;
        const place = y * width + x;
        known[place] = tool.value === "erase" ? 0 : 1;
        if (tool.value !== "erase") pixels.fill(tool.value === "light" ? 255 : 0, place * channels, (place + 1) * channels);
      }
    }
    show();
  }

  function where(event) {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / box.height * height), Math.floor((event.clientX - box.left) / box.width * width)];
  }
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); apply(...where(event)); event.preventDefault(); canvas.focus({ preventScroll: true }); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) for (const part of event.getCoalescedEvents?.() ?? [event]) apply(...where(part)); });
  const move = () => {
    marker.hidden = !canvas.matches(":focus-visible");
    marker.style.left = `${100 * (cursor[1] + 0.5) / width}%`;
    marker.style.top = `${100 * (cursor[0] + 0.5) / height}%`;
  };
  canvas.addEventListener("focus", move);
  canvas.addEventListener("blur", () => { marker.hidden = true; });
  canvas.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (event.key === " ") apply(...cursor);
    else if (down || right) cursor = [Math.max(0, Math.min(height - 1, cursor[0] + down)), Math.max(0, Math.min(width - 1, cursor[1] + right))];
    else return;
    move();
    event.preventDefault();
  });

  function eraseWhere(test, words) {
    for (let place = 0; place < size; place++) if (test(Math.floor(place / width), place % width)) known[place] = 0;
    show();
    say(words);
  }

  async function held() {
    try {
      const found = await post("playground/image-example", { run: run.name, number: example++ % examples });
      load(lastly(fromBase64(found.pixels), shape));
      setLabel(found.label);
    } catch (error) {
      say(error.message, { wrong: true });
    }
  }

  file.addEventListener("change", async () => {
    try {
      load((await pixelsOf(file.files[0], shape, { ground: "white", resizeWidth: width, resizeHeight: height, resizeQuality: "high" })).pixels);
    } catch {
      say("This file is no image that the browser can read.", { wrong: true });
    }
  });

  function load(next) {
    pixels = next.slice();
    known = new Uint8Array(size).fill(1);
    show();
  }

  function edit(next) {
    load(next);
    canvas.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }

  const element = card("Erase and complete",
    h("div", { class: "editing" },
      h("div", { class: "frame" }, canvas, marker),
      h("div", {},
        h("div", { class: "row" }, field("Pointer", tool), brush.element),
        h("div", { class: "buttons small" },
          button("Erase lower half", () => eraseWhere((row) => row >= height / 2, "The lower half is erased.")),
          button("Erase right half", () => eraseWhere((_, column) => column >= width / 2, "The right half is erased.")),
          button("Erase all", () => eraseWhere(() => true, "Everything is erased.")),
          examples > 0 && button("Held-out image", held)),
        field("Open an image file", file),
        h("div", { class: "buttons" }, button("Complete", () => complete({ pixels, known }), { class: "primary" })),
        told)));
  async function restore(png) {
    ({ pixels, known } = await pixelsOf(new Blob([fromBase64(png)], { type: "image/png" }), shape));
    show();
    return { pixels, known };
  }

  show();
  if (examples && !linked("completed")) held();
  return { element, load: edit, restore };
}

// Pictures that are uploaded, drawn or held out: their labels, or their captions and where each word looked.
import { bars, beamField, button, card, field, fromBase64, h, job, linked, percent, post, say, stepped, toBase64, tries } from "./dom.js";
import { download, elsewhere, linkTo, ways } from "./share.js";

const SIDE = 360; // of the picture under a caption

const blobOf = (png) => new Blob([fromBase64(png)], { type: "image/png" });

// An image as the bytes of a PNG file of at most 512 pixels a side: models here read fewer.
async function shrunk(file) {
  const bitmap = await createImageBitmap(file).catch(() => { throw new Error("This file is no image that the browser can read."); });
  const share = Math.min(1, 512 / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", { width: Math.round(bitmap.width * share), height: Math.round(bitmap.height * share) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  return new Uint8Array(await blob.arrayBuffer());
}

// `show` makes the results of an answer; `options` are sent with the picture, and `again` asks once more with others.
function pictureView(run, { verb, show, options = () => ({}), extra = null, codes, pad = null }) {
  const file = h("input", { type: "file", accept: "image/*" });
  const preview = h("img", { alt: "The picture as the model reads it", class: "preview", hidden: true });
  const results = h("div", { class: "results", "aria-live": "polite" });
  let last = null;
  let state = {};
  const ask = (blob, from = null) => job.run(async (signal) => {
    say("Working…");
    last = [blob, from];
    const found = await post(`playground/${verb}-image`, { run: run.name, image: toBase64(await shrunk(blob)), ...options() }, signal);
    state = from ?? { image: found.image.split(",")[1] };
    preview.src = found.image;
    preview.hidden = !pad || (from === null && !file.files.length); // a caption has the picture, and the canvas what is drawn on it
    results.replaceChildren(...show(found));
    say("");
  });
  const example = (number) => ask(blobOf(run.examples[number].split(",")[1]), { example: number });
  file.addEventListener("change", () => file.files.length && ask(file.files[0]));
  if (linked("image")) ask(blobOf(linked("image")));
  else if (run.examples.length) example(Math.min(Number(linked("example")) || 0, run.examples.length - 1));
  const examples = tries(run.examples.map((_, number) => number), example, (number) => h("img", { src: run.examples[number], alt: `held-out image ${number + 1}` }));
  const link = linkTo(run, () => ({ ...state, ...options() }));
  const element = h("div", {}, card("", examples, field(`Image file to ${verb}`, file), extra, preview, h("div", { class: "buttons" }, link)),
    pad ? h("div", { class: "pair" }, pad((blob) => { file.value = ""; return ask(blob); }), results) : results, elsewhere(run, codes));
  return { element, again: () => last && ask(...last) };
}

const encoded = (body) => `base64 -w 0 image.png | sed 's/.*/${body}/' |\n  curl ${location.origin}/`;

export function classifyImageView(run) {
  const show = ({ labels, inverted }) => [card("Labels", inverted && h("p", { class: "muted" }, "Light and dark were exchanged, as the training images have them."), bars(labels.slice(0, 20), 1))];
  const codes = () => ({
    ...ways(run, "classify", {}, { first: ['"image.png"'], argument: " image.png   # of the size of the training images" }),
    curl: `${encoded(`{"run": "${run.name}", "image": "&"}`)}playground/classify-image --json @-`,
  });
  return pictureView(run, { verb: "classify", show, codes, pad: drawingPad }).element;
}

// A canvas to draw on: what is drawn is classified as it is drawn.
function drawingPad(ask) {
  const side = 280;
  const canvas = h("canvas", { width: side, height: side, class: "pad", role: "img", tabindex: "0", "aria-label": "Canvas to draw on with the pointer" });
  const context = canvas.getContext("2d");
  const clear = () => { context.fillStyle = "black"; context.fillRect(0, 0, side, side); };
  const classify = () => new Promise((done) => { canvas.toBlob((blob) => done(ask(blob)), "image/png"); });
  let last = null;
  let asked = false; // while the pointer draws, one request at a time
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
    if (asked) return;
    asked = true;
    classify().finally(() => { asked = false; });
  });
  canvas.addEventListener("pointerup", () => { last = null; classify(); });
  clear();
  return card("Draw one", h("p", { class: "muted" }, "Large and in the middle, as the held-out images are."), canvas, h("div", { class: "buttons" }, button("Clear", clear)));
}

export function captionView(run) {
  const beam = beamField();
  const options = () => ({ beam: Number(beam.value) });
  const show = ({ image, candidates }) => {
    const best = h("div", {});
    const choose = (candidate) => best.replaceChildren(card("Caption", lookedAt(run, image, candidate)));
    choose(candidates[0]);
    return [best, candidates.length > 1 && candidateList(candidates, choose)].filter(Boolean);
  };
  const codes = () => ({
    ...ways(run, "caption", { ...options(), n_best: Number(beam.value) }, { first: ['"image.png"'], argument: " image.png" }),
    curl: `${encoded(`{"data": ["&"], "beam": ${beam.value}, "n_best": ${beam.value}}`)}runs/${encodeURIComponent(run.name)}/caption --json @-`,
  });
  const { element, again } = pictureView(run, { verb: "caption", show, options, codes, extra: h("div", { class: "row" }, field("Beam", beam)) });
  beam.addEventListener("change", again);
  return element;
}

// The captions that the search kept, each with its probability under the model.
function candidateList(candidates, choose) {
  const shares = candidates.map(({ nats }) => Math.exp(-nats));
  const shown = (share) => share >= 0.001 ? percent(share) : `${Number((100 * share).toPrecision(2))}%`;
  const rows = candidates.map((candidate, place) => {
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.max(100 * shares[place] / Math.max(...shares), 0.5)}%`;
    const row = button([h("span", { class: "name" }, candidate.caption || "(empty)"), h("span", { class: "track" }, bar), h("span", { class: "number" }, shown(shares[place]))],
      () => { choose(candidate); mark(place); }, { title: `${candidate.nats.toFixed(2)} nats` });
    return row;
  });
  const mark = (chosen) => rows.forEach((row, place) => row.setAttribute("aria-pressed", place === chosen));
  mark(0);
  return card("Candidates of the beam", h("p", { class: "muted" }, `The probability of each whole caption, exact. Together: ${shown(shares.reduce((sum, share) => sum + share, 0))} of all captions. The search makes up for length, so the first need not be the most probable. Choose one to see where it looked.`),
    h("ol", { class: "bars candidates" }, rows.map((row) => h("li", {}, row))));
}

// A caption word by word; the word under the pointer or with the focus tells where it looked.
function lookedAt(run, image, { words, surprise, nats, attention }) {
  const canvas = h("canvas", { width: SIDE, height: SIDE, class: "looked", role: "img", "aria-label": "The picture as the model reads it" });
  const told = h("p", { class: "muted", role: "status" });
  const picture = Object.assign(new Image(), { src: image });
  const ready = picture.decode();
  const chips = words.map((word, place) => h("button", { type: "button", class: "chip", tabindex: place ? "-1" : "0", onclick: () => look(place), onfocus: () => look(place), onpointerenter: (event) => event.pointerType === "mouse" && look(place) }, word));
  const list = h("div", { class: "chips answer", role: "group", "aria-label": "Caption, word by word: arrow keys move" }, chips);
  list.addEventListener("keydown", (event) => {
    const next = stepped(event.key, chips.indexOf(event.target), chips.length - 1);
    if (next === undefined) return;
    chips[next].focus();
    event.preventDefault();
  });

  async function look(place) {
    chips.forEach((chip, other) => {
      chip.tabIndex = other === place ? 0 : -1;
      chip.setAttribute("aria-pressed", other === place);
    });
    const likely = `“${words[place]}” had ${percent(Math.exp(-surprise[place]))}`;
    const side = attention && Math.sqrt(attention[place].length);
    const most = attention && Math.max(...attention[place]);
    told.textContent = attention ? `${likely}; the brightest place got ${percent(most)} of the attention (evenly spread: ${percent(1 / (side * side))}).` : `${likely}.`;
    await ready;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, SIDE, SIDE);
    if (!attention) return;
    canvas.setAttribute("aria-label", `Where the model looked for “${words[place]}”: bright places`);
    const shade = h("canvas", { width: side, height: side });
    const veil = shade.getContext("2d").createImageData(side, side);
    attention[place].forEach((weight, spot) => { veil.data[4 * spot + 3] = 255 * 0.85 * (1 - weight / most); });
    shade.getContext("2d").putImageData(veil, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(shade, 0, 0, SIDE, SIDE);
  }

  if (words.length) look(0);
  const save = h("div", { class: "buttons small save" }, button("PNG", () => download([canvas], `${run.name}.png`), { "aria-label": "Download the picture as PNG" }));
  return [list, h("p", { class: "muted" }, attention ? "Move over a word, or to it by keyboard: the picture is bright where the model looked." : "This model reads the picture as a whole: it has no attention to show."), h("div", { class: "frame" }, canvas), told, h("p", { class: "muted" }, `The whole caption: ${nats.toFixed(2)} nats.`), save];
}

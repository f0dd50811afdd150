// Sounds: drawn whole or after a prompt, the first part of a clip, as a waveform coloured by surprise.
import { button, card, field, fromBase64, h, job, linked, post, say, seedField, select, slider, stream, svg, toBase64 } from "./dom.js";
import { elsewhere, linkTo, savable, ways } from "./share.js";

const BARS = 240; // of a waveform

export function soundView(run) {
  const { rate, labels, seconds: usual, longest, examples } = run.facts;
  const seconds = h("input", { type: "number", min: 0.1, max: longest, step: "any", value: linked("seconds") ?? usual.toFixed(1), inputmode: "decimal" });
  const label = labels.length > 0 && select(labels.map((name, place) => [place, name]));
  const temperature = slider("Temperature", { min: 0, max: 2, step: 0.05, value: linked("temperature") ?? 1 });
  if (label && linked("label")) label.value = linked("label");
  const topP = slider("Top-p", { min: 0.05, max: 1, step: 0.05, value: linked("top_p") ?? 1 });
  const seed = seedField();
  const stop = button("Stop", () => job.stop(), { disabled: true, title: "Escape" });
  const result = h("div", {});
  const clip = h("div", {});
  const share = slider("Keep the first, %", { min: 5, max: 95, step: 5, value: Math.min(Number(linked("keep")) || 50, 95), digits: 0 });
  const file = h("input", { type: "file", accept: "audio/*" });
  const further = h("div", { hidden: true }, share.element, h("div", { class: "buttons" },
    button("Complete", () => make(share.value), { class: "primary" }), button("Read it", () => make(100))));
  let chosen = new Int16Array();
  let example = 0;
  let source = {}; // of the chosen clip, for a link: its number, or the sound itself
  let state = {}; // of the sound that is shown, beside the options

  // Draw a sound that begins with a part of the chosen clip, in per cent; the whole clip is only read.
  const make = (keep) => job.run(async (signal) => {
    const draws = keep < 100;
    const prompt = chosen.subarray(0, Math.round(chosen.length * keep / 100));
    state = { ...source, keep };
    say(draws ? "Drawing…" : "Reading…");
    const body = {
      run: run.name, seconds: draws ? Number(seconds.value) || usual : 0, prompt: toBase64(bytesOf(prompt)), label: label ? Number(label.value) : null,
      temperature: temperature.value, top_p: topP.value < 1 ? topP.value : null, seed: seed.next(),
    };
    const pieces = [];
    const chart = h("div", {});
    result.replaceChildren(card(draws ? "Sound drawn" : "Sound read", chart));
    try {
      for await (const record of stream("playground/sound", body, signal)) {
        if (record.finish) break;
        pieces.push({ samples: samplesOf(record.samples), nats: new Float32Array(fromBase64(record.nats).buffer) });
        chart.replaceChildren(wave(joined(pieces.map(({ samples }) => samples), Int16Array), joined(pieces.map(({ nats }) => nats), Float32Array), prompt.length, rate));
      }
      say(draws ? "Done: press play." : "Read.");
    } finally { // a sound that was stopped can be played too
      if (pieces.length) chart.append(player(joined(pieces.map(({ samples }) => samples), Int16Array), rate));
    }
  }, { stop });

  function choose(samples) {
    chosen = samples.subarray(0, longest * rate / 2);
    clip.replaceChildren(wave(chosen, null, 0, rate), player(chosen, rate));
    further.hidden = false;
  }

  const held = (number) => job.run(async (signal) => {
    const found = await post("playground/sound-example", { run: run.name, number }, signal);
    source = { clip: number };
    if (label) label.value = found.label;
    choose(samplesOf(found.samples));
  });

  file.addEventListener("change", () => job.run(async () => {
    const content = await file.files[0].arrayBuffer();
    const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(content).catch(() => { throw new Error("This file is no sound that the browser can read."); });
    const channels = Array.from({ length: sound.numberOfChannels }, (_, place) => sound.getChannelData(place));
    choose(Int16Array.from(channels[0], (_, place) => {
      const mean = channels.reduce((sum, values) => sum + values[place], 0) / channels.length;
      return Math.max(-32768, Math.min(32767, Math.round(32768 * mean)));
    }));
    source = { sound: await packed(chosen) };
  }));

  async function restore(sound, keep) {
    choose(await unpacked(sound));
    source = { sound };
    return make(keep);
  }

  const link = linkTo(run, () => ({ ...state, seconds: seconds.value, label: label ? label.value : null, temperature: temperature.value, top_p: topP.value < 1 ? topP.value : null, seed: seed.input.value }));
  if (linked("sound") !== null) restore(linked("sound"), Number(linked("keep")));
  else if (linked("clip") !== null) held(Number(linked("clip"))).then(() => make(Number(linked("keep"))));
  else if (linked("seed") !== null) make(0);
  else if (examples) held(example++);
  const codes = () => ways(run, "sample", { n: 1, seconds: Number(seconds.value) || usual, label: label ? labels[label.value] : null, temperature: temperature.value, top_p: topP.value < 1 ? topP.value : null, seed: Number(seed.input.value) });
  const options = h("details", { class: "card options", open: innerWidth > 760 }, h("summary", {}, "Options"),
    field("Seconds to draw", seconds), label && field("Label", label), temperature.element, topP.element, seed.element);
  return h("div", { class: "columns" },
    h("div", {},
      card("Draw", h("p", { class: "muted" }, `Samples are drawn one after the other, ${rate.toLocaleString("en")} for a second of sound.`),
        h("div", { class: "buttons" }, button("Draw", () => make(0), { class: "primary" }), stop, link)),
      result,
      card("Complete a clip", h("div", { class: "buttons" }, examples > 0 && button("Held-out clip", () => held(example++ % examples))), field("Open a sound file", file), clip, further),
      elsewhere(run, codes)),
    options);
}

const bytesOf = (samples) => new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
const samplesOf = (text) => new Int16Array(fromBase64(text).buffer);

// A sound in a link: its samples, deflated, in base64.
const through = async (bytes, change) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(change)).arrayBuffer());
const packed = async (samples) => toBase64(await through(bytesOf(samples), new CompressionStream("deflate-raw")));
const unpacked = async (text) => new Int16Array((await through(fromBase64(text), new DecompressionStream("deflate-raw"))).buffer);

function joined(parts, Kind) {
  const whole = new Kind(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

// A waveform, as high as its peak: a bar for some samples, from the lowest to the highest, coloured by their mean surprise where it is known.
function wave(samples, nats, given, rate) {
  const size = Math.max(1, Math.ceil(samples.length / BARS));
  const mean = (from) => {
    const part = nats.subarray(from, from + size);
    return part.reduce((sum, value) => sum + value, 0) / part.length / Math.LN2;
  };
  const starts = Array.from({ length: Math.ceil(samples.length / size) }, (_, place) => place * size);
  const bits = nats && starts.map(mean);
  const most = bits && Math.max(...bits);
  const wide = 960 / BARS;
  const peak = samples.reduce((high, value) => Math.max(high, Math.abs(value)), 1);
  const bars = starts.map((from, place) => {
    const part = samples.subarray(from, from + size);
    const [low, high] = [Math.min(...part), Math.max(...part)].map((value) => 80 - 76 * value / peak);
    const bar = svg("rect", { class: from < given ? "given" : null, x: place * wide, y: high, width: wide * 0.8, height: Math.max(low - high, 1) });
    bar.style.fill = bits ? `color-mix(in srgb, rgb(var(--heat)) ${(100 * bits[place] / most).toFixed(0)}%, var(--accent))` : "var(--accent)";
    return bar;
  });
  const end = given < samples.length ? given / size * wide : 0;
  const words = `${(samples.length / rate).toFixed(2)} s, ${samples.length.toLocaleString("en")} samples` +
    (bits ? `, ${(nats.reduce((sum, value) => sum + value, 0) / nats.length / Math.LN2).toFixed(2)} bits a sample` : "");
  const chart = svg("svg", { viewBox: "0 0 960 160", class: "chart wave", role: "img", "aria-label": `Waveform: ${words}` }, bars,
    end > 0 && svg("line", { class: "now", x1: end, x2: end, y1: 0, y2: 160 }));
  const colours = bits && `; blue: expected, orange: surprising, up to ${most.toFixed(1)} bits a sample`;
  return h("div", {}, savable(chart, "waveform"), h("p", { class: "muted" }, words, colours, given > 0 && "; pale: the prompt"));
}

// The sound as a wav file of 16 bits.
function player(samples, rate) {
  const header = new DataView(new ArrayBuffer(44));
  const text = (place, letters) => [...letters].forEach((letter, step) => header.setUint8(place + step, letter.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, 36 + samples.byteLength, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true); // integers
  header.setUint16(22, 1, true); // one channel
  header.setUint32(24, rate, true);
  header.setUint32(28, 2 * rate, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  text(36, "data");
  header.setUint32(40, samples.byteLength, true);
  return h("audio", { controls: true, "aria-label": "Player of the sound", src: URL.createObjectURL(new Blob([header, samples], { type: "audio/wav" })) });
}

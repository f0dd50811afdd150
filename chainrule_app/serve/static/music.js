// Music: a piano roll coloured by the surprise of each note, with that of each frame below, played by the browser.
import { button, card, field, h, job, linked, post, say, seedField, select, short, slider, svg, ticks } from "./dom.js";
import { elsewhere, linkTo, savable, ways } from "./share.js";

const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"];
const MOST = 6; // nats at which the colour of a note is strongest
const named = (key) => `${NAMES[key % 12]}${Math.floor(key / 12) - 1}`;

export function musicView(run) {
  const { examples } = run.facts;
  const seconds = slider("Seconds", { min: 4, max: 60, step: 1, value: linked("seconds") ?? 12, digits: 0 });
  const temperature = slider("Temperature", { min: 0.2, max: 1.5, step: 0.05, value: linked("temperature") ?? 1 });
  const after = select([["", "nothing"], ...Array.from({ length: examples }, (_, place) => [place, `held-out piece ${place + 1}`])]);
  const seed = seedField();
  const stop = button("Stop", () => job.stop(), { disabled: true, title: "Escape" });
  const result = h("div", { class: "results", "aria-live": "polite" });

  let piece = null; // number of the held-out piece that is shown
  const show = (title, found) => result.replaceChildren(card(title, roll(found), player(found)));
  const draw = () => job.run(async (signal) => {
    say("Drawing…");
    const body = { run: run.name, seconds: seconds.value, temperature: temperature.value, seed: seed.next(), after: after.value === "" ? null : Number(after.value) };
    const found = await post("playground/music", body, signal);
    show("Piece drawn", found);
    piece = null;
    say(`Drew ${(found.nats.length * found.frame).toFixed(0)} s, ${found.notes.length} notes.`);
  }, { stop });
  const held = (number) => job.run(async (signal) => {
    show(`Held-out piece ${number + 1}`, await post("playground/music-example", { run: run.name, number }, signal));
    after.value = piece = number;
    say("");
  });
  const link = linkTo(run, () => piece === null ? { seconds: seconds.value, temperature: temperature.value, after: after.value, seed: seed.input.value } : { piece });
  if (linked("seed") !== null) {
    after.value = linked("after") ?? "";
    draw();
  } else if (examples) held(Math.min(Number(linked("piece")) || 0, examples - 1));
  const codes = () => ways(run, "sample", { seconds: seconds.value, temperature: temperature.value, seed: Number(seed.input.value) }, { argument: " --out piece.mid" });
  return h("div", { class: "columns" },
    h("div", {}, result,
      examples > 0 && card("Held-out pieces", h("div", { class: "buttons small" }, Array.from({ length: examples }, (_, place) => button(String(place + 1), () => held(place), { "aria-label": `Held-out piece ${place + 1}` })))),
      elsewhere(run, codes)),
    card("Draw a piece", seconds.element, temperature.element, field("Goes on after", after), seed.element,
      h("div", { class: "buttons" }, button("Draw", draw, { class: "primary" }), stop, link)));
}

function roll({ notes, nats, frame, given }) {
  const keys = notes.map(([, , key]) => key);
  const [low, high] = keys.length ? [Math.min(...keys) - 2, Math.max(...keys) + 2] : [58, 74];
  const [wide, tall] = innerWidth > 760 ? [960, 290] : [330, 220];
  const [left, foot, bottom] = [28, 46, 18]; // of the names of keys, of the surprise, and of the seconds
  const x = (at) => left + (wide - left) * at / nats.length;
  const height = (tall - foot - bottom) / (high - low + 1);
  const floor = tall - bottom;
  const cs = Array.from({ length: 11 }, (_, octave) => 12 * octave).filter((key) => key >= low && key <= high);
  const most = Math.max(...nats, 1);
  const words = `${notes.length} notes from ${named(low + 2)} to ${named(high - 2)}; blue: expected, orange: surprising, from ${MOST} nats on; below, the surprise of each frame, up to ${most.toFixed(1)} nats`;
  const chart = svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "chart", "aria-label": words },
    given ? svg("rect", { class: "given", x: left, y: 0, width: x(given) - left, height: floor }) : null,
    cs.map((key) => [svg("line", { class: "grid", x1: left, x2: wide, y1: (high - key + 1) * height, y2: (high - key + 1) * height }), svg("text", { x: left - 5, y: (high - key + 0.5) * height + 4, "text-anchor": "end" }, named(key))]).flat(),
    ticks(0, nats.length * frame, wide > 330 ? 8 : 4).slice(1, -1).map((second) => svg("text", { x: x(second / frame), y: tall - 4, "text-anchor": "middle" }, `${short(second)} s`)),
    notes.map(([start, stop, key, surprise]) => {
      const note = svg("rect", { class: "note", x: x(start), y: (high - key) * height, width: Math.max(x(stop) - x(start) - 1, 1), height: Math.max(height - 1, 2), rx: 1 }, svg("title", {}, `${named(key)}: ${surprise.toFixed(1)} nats`));
      note.style.fill = `color-mix(in srgb, rgb(var(--heat)) ${Math.min(100, 100 * surprise / MOST).toFixed(0)}%, var(--accent))`;
      return note;
    }),
    nats.map((value, place) => svg("rect", { class: "surprise", x: x(place), y: floor - foot * 0.85 * value / most, width: Math.max(x(1) - left - 0.5, 0.5), height: foot * 0.85 * value / most })),
    svg("line", { class: "playhead", x1: left, x2: left, y1: 0, y2: floor }));
  return h("figure", { class: "roll" }, savable(chart, "piano roll"), h("figcaption", { class: "muted" }, words + (given ? "; shaded: the beginning that was given" : "")));
}

// A note is a decaying tone with two overtones.
function player({ notes, nats, frame }) {
  let context = null;
  const button_ = button("Play", () => (context ? end() : begin()), { class: "primary" });
  const end = () => {
    context?.close();
    context = null;
    button_.textContent = "Play";
  };
  const begin = () => {
    context = new AudioContext();
    button_.textContent = "Stop playing";
    const loud = new GainNode(context, { gain: 0.12 });
    loud.connect(context.destination);
    for (const [start, stop, key] of notes) {
      const [from, to] = [start * frame + 0.05, stop * frame + 0.05];
      for (const [overtone, share] of [[1, 1], [2, 0.35], [3, 0.12]]) {
        const tone = new OscillatorNode(context, { frequency: overtone * 440 * 2 ** ((key - 69) / 12) });
        const level = new GainNode(context, { gain: 0 });
        level.gain.setValueAtTime(0, from);
        level.gain.linearRampToValueAtTime(share, from + 0.01);
        level.gain.exponentialRampToValueAtTime(share * 0.3, Math.max(to, from + 0.02));
        level.gain.linearRampToValueAtTime(0, Math.max(to, from + 0.02) + 0.08);
        tone.connect(level).connect(loud);
        tone.start(from);
        tone.stop(to + 0.2);
      }
    }
    const line = button_.closest(".card").querySelector(".playhead");
    const [left, wide] = [Number(line.getAttribute("x1")), line.closest("svg").viewBox.baseVal.width];
    const whole = nats.length * frame;
    const move = () => {
      if (!context || !document.contains(button_)) return end();
      const share = Math.min(1, context.currentTime / whole);
      for (const name of ["x1", "x2"]) line.setAttribute(name, left + (wide - left) * share);
      return share < 1 ? requestAnimationFrame(move) : end();
    };
    move();
  };
  return h("div", { class: "buttons" }, button_);
}

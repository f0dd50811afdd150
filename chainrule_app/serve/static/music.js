// Music: a piano roll with the surprise of each frame, played by the browser.
import { button, card, curl, elsewhere, field, h, job, linked, linkTo, post, say, seedField, select, slider, svg } from "./dom.js";

const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"];
const named = (key) => `${NAMES[key % 12]}${Math.floor(key / 12) - 1}`;

export function musicView(run) {
  const { examples } = run.facts;
  const seconds = slider("Seconds", { min: 4, max: 60, step: 1, value: linked("seconds") ?? 12, digits: 0 });
  const temperature = slider("Temperature", { min: 0.2, max: 1.5, step: 0.05, value: linked("temperature") ?? 1 });
  const after = select([["", "nothing"], ...Array.from({ length: examples }, (_, place) => [place, `held-out piece ${place + 1}`])]);
  const seed = seedField();
  const stop = button("Stop", () => job.stop(), { disabled: true, title: "Escape" });
  const result = h("div", { class: "results", "aria-live": "polite" });

  const show = (title, piece) => result.replaceChildren(card(title, roll(piece), player(piece)));
  const draw = () => job.run(async (signal) => {
    say("Drawing…");
    const body = { run: run.name, seconds: seconds.value, temperature: temperature.value, seed: seed.next(), after: after.value === "" ? null : Number(after.value) };
    const piece = await post("playground/music", body, signal);
    show("Piece drawn", piece);
    say(`Drew ${(piece.nats.length * piece.frame).toFixed(0)} s, ${piece.notes.length} notes.`);
  }, { stop });
  const held = (number) => job.run(async (signal) => {
    show(`Held-out piece ${number + 1}`, await post("playground/music-example", { run: run.name, number }, signal));
    after.value = number;
    say("");
  });
  const link = linkTo(run, () => ({ seconds: seconds.value, temperature: temperature.value, after: after.value, seed: seed.input.value }));
  if (linked("seed") !== null) {
    after.value = linked("after") ?? "";
    draw();
  } else if (examples) held(0);
  const ways = () => ({
    command: `chainrule sample runs/${run.name} --seconds ${seconds.value} --temperature ${temperature.value} --seed ${seed.input.value} --out piece.mid`,
    Python: `run = chainrule.load("runs/${run.name}")\nrun.sample(seconds=${seconds.value}, temperature=${temperature.value}, seed=${seed.input.value})`,
    curl: curl(run, "sample", { seconds: seconds.value, temperature: temperature.value, seed: Number(seed.input.value) }),
  });
  return h("div", { class: "columns" },
    h("div", {}, result,
      examples > 0 && card("Held-out pieces", h("div", { class: "buttons small" }, Array.from({ length: examples }, (_, place) => button(String(place + 1), () => held(place), { "aria-label": `Held-out piece ${place + 1}` })))),
      elsewhere(ways)),
    card("Draw a piece", seconds.element, temperature.element, field("Goes on after", after), seed.element,
      h("div", { class: "buttons" }, button("Draw", draw, { class: "primary" }), stop, link)));
}

function roll({ notes, nats, given }) {
  const keys = notes.map(([, , key]) => key);
  const [low, high] = keys.length ? [Math.min(...keys) - 2, Math.max(...keys) + 2] : [58, 74];
  const [wide, tall, foot] = [960, 260, 46];
  const x = (frame) => wide * frame / nats.length;
  const height = (tall - foot) / (high - low + 1);
  const most = Math.max(...nats, 1);
  const words = `${notes.length} notes from ${named(low + 2)} to ${named(high - 2)}; below, the surprise of each frame, up to ${most.toFixed(1)} nats`;
  return h("figure", { class: "roll" }, svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "chart", "aria-label": words },
    given ? svg("rect", { class: "given", x: 0, y: 0, width: x(given), height: tall }) : null,
    notes.map(([start, stop, key]) => svg("rect", { class: "note", x: x(start), y: (high - key) * height, width: Math.max(x(stop) - x(start) - 1, 1), height: Math.max(height - 1, 2), rx: 1 }, svg("title", {}, named(key)))),
    nats.map((value, frame) => svg("rect", { class: "surprise", x: x(frame), y: tall - foot * 0.85 * value / most, width: Math.max(x(1) - 0.5, 0.5), height: foot * 0.85 * value / most })),
    svg("line", { class: "playhead", x1: 0, x2: 0, y1: 0, y2: tall })),
  h("figcaption", { class: "muted" }, words + (given ? "; shaded: the beginning that was given" : "")));
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
    const whole = nats.length * frame;
    const move = () => {
      if (!context || !document.contains(button_)) return end();
      const share = Math.min(1, context.currentTime / whole);
      for (const name of ["x1", "x2"]) line.setAttribute(name, 960 * share);
      return share < 1 ? requestAnimationFrame(move) : end();
    };
    move();
  };
  return h("div", { class: "buttons" }, button_);
}

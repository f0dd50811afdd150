// A run in training: its curve, speed, time left and samples as the trainer writes them, and Stop.
import { button, card, get, h, job, post, say, short, svg, ticks } from "./dom.js";
import { savable } from "./share.js";

const EVERY = 2000; // milliseconds between two looks
const WINDOW = 30000; // over which the speed is measured

const clock = (seconds) => {
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${rest} s` : `${rest} s`;
};

export function trainingView(run, reload) {
  const bar = h("progress", { max: 1, "aria-label": "Part of the training that is done" });
  const figures = h("dl", { class: "facts" });
  const chart = h("div", {});
  const samples = h("div", { class: "results" });
  const ending = h("p", { role: "status" });
  const stop = button("Stop training", () => job.run(async (signal) => {
    await post("playground/stop-training", { run: run.name }, signal);
    stop.disabled = true;
    say("The trainer saves and ends.");
  }), { disabled: true });
  const seen = []; // [time, steps, elements] of the last looks
  let drawn = -1;

  function speed(found) {
    const now = performance.now();
    seen.push([now, found.step, found.elements]);
    while (now - seen[0][0] > WINDOW) seen.shift();
    const [then, step, elements] = seen[0];
    const minutes = (now - then) / 60000;
    return minutes && found.step > step ? `${short((found.step - step) / minutes)} steps, ${short((found.elements - elements) / minutes)} ${found.unit}s a minute` : "";
  }

  function paint(found) {
    const { training, stopping, seconds, left, validations, quantity, unit } = found;
    const best = validations.findLast((each) => each[2]);
    const facts = [
      ["step", found.step.toLocaleString("en")],
      ["speed", training ? speed(found) : ""],
      ["trained for", seconds === null ? "" : clock(seconds)],
      ["time left", left === null ? (training && !validations.length ? "known after the first validation" : "") : `about ${clock(left)}`],
      ["best held out", best ? `${best[1].toFixed(4)} ${quantity} per ${unit}, at step ${best[0].toLocaleString("en")}` : ""],
    ];
    figures.replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    if (left === null) bar.removeAttribute("value");
    else bar.value = seconds / (seconds + left || 1);
    bar.hidden = !training;
    chart.replaceChildren(...(found.curve.length > 1 ? curve(found) : [h("p", { class: "muted" }, training ? "The first steps have not been taken yet." : "No step was taken.")]));
    stop.hidden = !training || !found.may_stop;
    stop.disabled = stopping;
    if (found.samples.length && found.samples[0].step !== drawn) {
      drawn = found.samples[0].step;
      samples.replaceChildren(card("Samples, the last ones first", h("ul", { class: "plain" }, found.samples.map(sample))));
    }
    if (stopping) ending.textContent = "The trainer was asked to stop: it saves and ends.";
    if (!training) end(found);
  }

  function end({ trained, step }) {
    ending.replaceChildren(`The training has ended at step ${step.toLocaleString("en")}. To go on with it: `, h("code", {}, `chainrule train --resume --out runs/${run.name}`));
    if (trained) ending.after(h("div", { class: "buttons" }, button("Open the run", reload, { class: "primary" })));
  }

  async function look() {
    let found = null;
    try {
      found = await get(`playground/training/${encodeURIComponent(run.name)}`);
    } catch (error) {
      say(error.message, { wrong: true });
    }
    if (!element.isConnected) return; // another run is shown
    if (found) paint(found);
    if (!found || found.training) setTimeout(() => element.isConnected && look(), EVERY);
  }

  const element = h("div", {}, card("Training", bar, figures, ending, h("div", { class: "buttons" }, stop)), card("Loss", chart), samples);
  queueMicrotask(look);
  return element;
}

const sample = ({ step, text, png }) => h("li", {}, h("p", { class: "muted" }, `step ${step.toLocaleString("en")}`),
  png ? h("img", { src: `data:image/png;base64,${png}`, alt: `Samples at step ${step}`, class: "preview" }) : h("pre", { tabindex: "0", role: "group", "aria-label": `Sample at step ${step}` }, text));

// The first steps of a training are far above the others: what is higher than most leaves the picture at its upper edge.
function curve({ curve: points, validations, quantity, unit }) {
  const [wide, tall, left, bottom] = innerWidth > 760 ? [960, 300, 56, 24] : [330, 220, 48, 24];
  const later = points.slice(Math.floor(points.length / 20)).map(([, value]) => value).concat(validations.map(([, value]) => value));
  const [least, most] = [Math.min(...later), Math.max(...later)];
  const last = Math.max(points.at(-1)[0], validations.at(-1)?.[0] ?? 0);
  const x = (step) => (left + (wide - left - 10) * step / last).toFixed(1);
  const y = (value) => (8 + (tall - bottom - 16) * (1 - (Math.min(value, most) - least) / (most - least || 1))).toFixed(1);
  const held = validations.length ? `; held out ${validations.at(-1)[1].toFixed(3)}` : "";
  return [
    ...savable(svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "chart", "aria-label": `${quantity} per ${unit} after ${last} steps: training ${points.at(-1)[1].toFixed(3)}${held}` },
      ticks(least, most, 4).map((value) => [svg("line", { class: "grid", x1: left, x2: wide - 10, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: Number(y(value)) + 4, "text-anchor": "end" }, short(value))]).flat(),
      svg("path", { class: "median", d: points.map(([step, value], place) => `${place ? "L" : "M"}${x(step)} ${y(value)}`).join("") }),
      validations.map(([step, value]) => svg("circle", { class: "held", cx: x(step), cy: y(value), r: 4 }, svg("title", {}, `step ${step}: ${value.toFixed(4)}`))),
      svg("text", { x: left, y: tall - 6 }, "0"), svg("text", { x: wide - 10, y: tall - 6, "text-anchor": "end" }, `step ${last.toLocaleString("en")}`)), "loss"),
    h("p", { class: "legend muted" }, h("i", { class: "key median" }), "training ", h("i", { class: "key held" }), `held out, ${quantity} per ${unit}`),
  ];
}

// Elements, requests and charts shared by the views. Text from users and models enters the page as text nodes alone.

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== false && child != null));
  return element;
}

export function button(text, action, attributes = {}) {
  return h("button", { type: "button", onclick: action, ...attributes }, text);
}

export function field(label, control, hint = "") {
  control.id ||= `field-${(field.count = (field.count || 0) + 1)}`;
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint && h("small", {}, hint));
}

export function slider(label, { min, max, step, value, digits = 2 }, changed = () => {}) {
  const shown = h("output", {}, Number(value).toFixed(digits));
  const input = h("input", { type: "range", min, max, step, value });
  input.addEventListener("input", () => {
    shown.textContent = Number(input.value).toFixed(digits);
    changed();
  });
  const element = field(label, input);
  element.firstChild.append(" ", shown);
  return { element, input, get value() { return Number(input.value); }, set value(next) {
    input.value = next;
    shown.textContent = Number(input.value).toFixed(digits);
  } };
}

export function select(options, attributes = {}) {
  return h("select", attributes, options.map(([value, text]) => h("option", { value }, text)));
}

export const beamField = () => Object.assign(select([[1, "1"], [4, "4"], [8, "8"]]), { value: linked("beam") ?? 4 });

export function seedField() {
  const input = h("input", { type: "number", min: 0, max: 2147483647, value: 1, inputmode: "numeric" });
  const fresh = h("input", { type: "checkbox", checked: true });
  if (linked("seed") !== null) {
    input.value = linked("seed");
    fresh.checked = false;
  }
  const element = field("Seed", input);
  element.append(h("label", { class: "check" }, fresh, " new each time"));
  return { element, input, fresh, next() {
    if (fresh.checked) input.value = Math.floor(Math.random() * 1e6);
    return Math.max(0, Math.floor(Number(input.value) || 0));
  } };
}

// The status line is read out by screen readers; it fades from the screen, so that it covers nothing for long. What went
// wrong stays until the next line.
export function say(text, { wrong = false } = {}) {
  const status = document.getElementById("status");
  clearTimeout(say.timer);
  status.classList.remove("faded");
  status.classList.toggle("wrong", wrong);
  status.textContent = text;
  if (!wrong) say.timer = setTimeout(() => job.controller || status.classList.add("faded"), 2500 + 60 * text.length);
}

// A server that wants a bearer token gets the one of the address: http://127.0.0.1:8000/#token=SECRET
export const bear = (token) => sessionStorage.setItem("token", token);

const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) {
  bear(fragment.get("token"));
  history.replaceState(null, "", location.pathname);
}

async function request(path, options) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `chainrule serve` still running?");
  }
  if (!response.ok) throw Object.assign(new Error(await reason(response)), { status: response.status });
  return response;
}

async function reason(response) {
  try {
    const { error, detail } = await response.json();
    const told = error?.message ?? error ?? detail;
    return typeof told === "string" ? told : told.map((part) => `${part.loc.at(-1)}: ${part.msg}`).join("; ");
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

export const get = async (path) => (await request(path, {})).json();

const jsonBody = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const post = async (path, body, signal) => (await request(path, { ...jsonBody(body), signal })).json();

export async function* stream(path, body, signal) {
  const response = await request(path, { ...jsonBody(body), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const record = JSON.parse(line);
      if (record.error) throw new Error(record.error);
      yield record;
    }
  }
}

// One job at a time: starting another, the Stop button and Escape end the one that runs. It has ended when its `work` has.
export const job = { controller: null, async run(work, buttons = {}) {
  this.stop();
  const controller = (this.controller = new AbortController());
  if (buttons.stop) buttons.stop.disabled = false;
  document.getElementById("main").setAttribute("aria-busy", "true");
  try {
    return await work(controller.signal);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, { wrong: true });
    else if (this.controller === controller) say("Stopped.");
  } finally {
    if (this.controller === controller) {
      this.controller = null;
      document.getElementById("main").setAttribute("aria-busy", "false");
    }
    if (buttons.stop && this.controller === null) buttons.stop.disabled = true;
  }
}, stop() {
  this.controller?.abort();
  return this.controller !== null;
} };

// Held-out data of the run, one click each.
export function tries(examples, use, name = (example) => example) {
  if (!examples?.length) return null;
  const clipped = (text) => text.length > 34 ? `${text.slice(0, 32).trimEnd()}…` : text;
  return h("div", { class: "buttons small tries" }, h("span", { class: "muted" }, "Held-out data:"),
    examples.map((example, place) => {
      const shown = name(example, place);
      return button(typeof shown === "string" ? clipped(shown.replace(/\s+/g, " ").trim()) : shown, () => use(example), { title: "Use this example" });
    }));
}

// The page shows what was asked for: in a narrow window it would lie below the screen.
export function reveal(element) {
  if (element.getBoundingClientRect().top > innerHeight - 120) {
    element.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
}

// State of a view in the address: #run?name=value
export function linked(name) {
  return new URLSearchParams(location.hash.split("?")[1] ?? "").get(name);
}

export function remember(run, name, value) {
  try {
    sessionStorage.setItem(`${run}/${name}`, JSON.stringify(value));
  } catch {
    sessionStorage.removeItem(`${run}/${name}`); // it is full: the page works without
  }
}

export function recall(run, name, otherwise) {
  return JSON.parse(sessionStorage.getItem(`${run}/${name}`)) ?? otherwise;
}

// The place that a key of the keyboard leads to among others; undefined for other keys.
export function stepped(key, place, last) {
  const next = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: last }[key];
  return next === undefined ? undefined : Math.max(0, Math.min(next, last));
}

// Round numbers between two, for the axis of a chart.
export function ticks(least, most, about = 5) {
  const raw = (most - least || 1) / about;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find((size) => size * unit >= raw);
  const first = Math.ceil(least / step);
  return Array.from({ length: Math.floor(most / step) - first + 1 }, (_, place) => (first + place) * step);
}

export const short = (value) => Number(value.toPrecision(3)).toLocaleString("en");

export const percent = (share) => share >= 0.0995 ? `${(100 * share).toFixed(0)}%` : share >= 0.001 ? `${(100 * share).toFixed(1)}%` : share > 0 ? "<0.1%" : "0%";

export function bars(rows, most = Math.max(...rows.map(([, share]) => share), 1e-9)) {
  return h("ul", { class: "bars" }, rows.map(([name, share, shown = percent(share)]) => {
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.max(100 * share / most, 0.5)}%`;
    return h("li", {}, h("span", { class: "name", title: name }, name), h("span", { class: "track" }, bar), h("span", { class: "number" }, shown));
  }));
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), ...children);
}

export function toBase64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  return btoa(text);
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// A view for others: its state in a link, its request elsewhere, and its pictures as files.
import { button, h, say, svg } from "./dom.js";

const LONGEST_LINK = 100000; // characters that every browser takes

const given = (options) => Object.entries(options).filter(([, value]) => value !== null && value !== undefined && value !== "");

// `values` gives the state; `linked` reads it when the view is opened by the link.
export function linkTo(run, values) {
  return button("Copy link", async () => {
    const address = `${location.origin}${location.pathname}#${encodeURIComponent(run.name)}?${new URLSearchParams(given(values()))}`;
    if (address.length > LONGEST_LINK) return say("This is too much for a link.", { wrong: true });
    await navigator.clipboard.writeText(address);
    history.replaceState(null, "", address);
    say("Copied: the link restores this page.");
  });
}

// The same request on the command line, in Python and over HTTP. Options that are not set are left out.
export function ways(run, verb, options, { input = "", argument = "", first = [], body = {} } = {}) {
  const set = given(options);
  const flags = set.map(([name, value]) => ` ${name.length > 1 ? `--${name.replaceAll("_", "-")}` : `-${name}`} ${typeof value === "string" ? quoted(value) : value}`);
  const words = [...first, ...set.map(([name, value]) => `${name}=${JSON.stringify(value)}`)];
  return {
    command: `${input}chainrule ${verb} runs/${run.name}${flags.join("")}${argument}`,
    Python: `import chainrule\n\nrun = chainrule.load("runs/${run.name}")\nrun.${verb}(${words.join(", ")})`,
    curl: `curl ${location.origin}/runs/${encodeURIComponent(run.name)}/${verb} \\\n  --json ${quoted(JSON.stringify({ ...body, ...Object.fromEntries(set) }))}`,
  };
}

export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`; // for a shell

// What `codes` gives is shown anew whenever something on the page was changed.
export function elsewhere(run, codes) {
  const texts = ["command", "Python", "curl"].map((name) => h("pre", { tabindex: "0", role: "group", "aria-label": name }));
  const rows = texts.map((text) => {
    const name = text.getAttribute("aria-label");
    const copy = button("Copy", async () => { await navigator.clipboard.writeText(text.textContent); say("Copied."); }, { "aria-label": `Copy as ${name}` });
    return h("div", { class: "way" }, h("div", { class: "toolbar" }, h("strong", {}, name), copy), text);
  });
  const paint = () => { if (element.open) Object.values(codes()).forEach((code, place) => { texts[place].textContent = code; }); };
  const soon = () => { if (element.isConnected) setTimeout(paint); else for (const kind of KINDS) main.removeEventListener(kind, soon); };
  const KINDS = ["input", "change", "click"];
  const main = document.getElementById("main");
  const element = h("details", { class: "card", ontoggle: () => { paint(); for (const kind of KINDS) main.addEventListener(kind, soon); } },
    h("summary", {}, "The same elsewhere: command, Python, curl"),
    h("p", { class: "muted" }, h("code", {}, `runs/${run.name}`), " stands for the folder of this run."), rows);
  return element;
}

const save = (url, name) => h("a", { href: url, download: name }).click();

// Canvases side by side as a PNG file.
export function download(canvases, name) {
  const { width, height } = canvases[0];
  const whole = h("canvas", { width: width * canvases.length, height });
  canvases.forEach((canvas, place) => whole.getContext("2d").drawImage(canvas, place * width, 0));
  save(whole.toDataURL("image/png"), name);
}

// A chart, and buttons that save it as it looks now.
export function savable(chart, name) {
  const address = () => URL.createObjectURL(new Blob([written(chart)], { type: "image/svg+xml" }));
  const png = async () => {
    const image = Object.assign(new Image(), { src: address() });
    await image.decode();
    const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    download([canvas], `${name}.png`);
  };
  return [chart, h("div", { class: "buttons small save" },
    button("SVG", () => save(address(), `${name}.svg`), { "aria-label": `Download ${name} as SVG` }),
    button("PNG", png, { "aria-label": `Download ${name} as PNG` }))];
}

// The text of an SVG file that needs no style sheet: what the page's styles make of a chart becomes attributes.
function written(chart) {
  const copy = chart.cloneNode(true);
  const parts = [copy, ...copy.querySelectorAll("*")];
  [chart, ...chart.querySelectorAll("*")].forEach((part, place) => {
    const style = getComputedStyle(part);
    parts[place].removeAttribute("style");
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"]) parts[place].setAttribute(name, style.getPropertyValue(name));
  });
  const { width, height } = chart.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const ground = getComputedStyle(chart.closest(".card") ?? document.body).backgroundColor;
  copy.prepend(svg("title", {}, chart.getAttribute("aria-label")), svg("rect", { width, height, fill: ground }));
  return new XMLSerializer().serializeToString(copy);
}

// The shell: the list of runs, the view of the chosen one, and Escape.
import { bear, button, card, field, get, h, job, say } from "./dom.js";
import { imageView } from "./image.js";
import { musicView } from "./music.js";
import { latentView } from "./latent.js";
import { soundView } from "./sound.js";
import { tableView } from "./table.js";
import { textView } from "./text.js";
import { trainingView } from "./training.js";
import { classifyView, forecastView, tagView, translateView } from "./answers.js";
import { captionView, classifyImageView } from "./pictures.js";

const VIEWS = {
  text: textView, image: imageView, latent: latentView, sound: soundView, music: musicView, table: tableView, tag: tagView,
  classify: classifyView, "classify-images": classifyImageView, translate: translateView, caption: captionView, forecast: forecastView,
  training: (run) => trainingView(run, begin),
};

const main = document.getElementById("main");
const nav = document.querySelector("nav");
let runs = [];

function show(name) {
  const run = runs.find((other) => other.name === name) ?? runs[0];
  job.stop();
  say("");
  for (const link of document.querySelectorAll("#runs a")) {
    if (link.dataset.run === run.name) {
      link.setAttribute("aria-current", "page");
      // `scrollIntoView` would let the Tab key begin here, and pass over what comes before.
      nav.scrollLeft = link.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
    } else link.removeAttribute("aria-current");
  }
  document.title = `${run.name} · chainrule playground`;
  const about = h("p", { class: "about" }, h("strong", {}, run.name), ` ${run.task} · ${run.model}`, run.best && ` · ${run.best}`);
  const view = VIEWS[run.view]?.(run, runs) ?? h("p", { class: "card" }, run.problem ?? "The playground has no view for this run. The API and the command line can use it.");
  main.replaceChildren(about, view);
  main.setAttribute("aria-busy", "false");
}

const chosen = () => decodeURIComponent(location.hash.slice(1).split("?")[0]);

function tokenForm(refused) {
  const token = h("input", { type: "password", autocomplete: "off" });
  const go = () => { bear(token.value.trim()); begin(); };
  token.addEventListener("keydown", (event) => event.key === "Enter" && go());
  return card("This server asks for a token", refused && h("p", { class: "wrong", role: "alert" }, "The server did not accept this token."),
    field("Token that the server was started with", token), button("Open", go, { class: "primary" }));
}

async function begin() {
  try {
    ({ runs } = await get("playground/runs"));
  } catch (error) {
    main.replaceChildren(error.status === 401 ? tokenForm(sessionStorage.getItem("token")) : h("p", { class: "card" }, error.message));
    main.setAttribute("aria-busy", "false");
    return;
  }
  document.getElementById("runs").replaceChildren(...runs.map((run) =>
    h("li", {}, h("a", { href: `#${encodeURIComponent(run.name)}`, "data-run": run.name }, run.name, h("small", {}, run.task)))));
  show(chosen());
}

addEventListener("hashchange", () => runs.length && show(chosen()));

document.querySelector(".skip").addEventListener("click", (event) => { // the address names the run, not a place on the page
  event.preventDefault();
  main.focus();
});

const theme = document.getElementById("theme");
function dress(choice) {
  document.documentElement.style.colorScheme = choice === "system" ? "" : choice;
  theme.value = choice;
}
theme.addEventListener("change", () => { localStorage.setItem("theme", theme.value); dress(theme.value); });
dress(localStorage.getItem("theme") ?? "system");

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && job.stop()) event.preventDefault();
});

begin();

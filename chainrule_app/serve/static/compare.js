// Two runs side by side on the same text, each symbol coloured by its surprise.
import { button, card, field, h, job, say, select, stream } from "./dom.js";

export function compareView(run, runs, text, colours) {
  const others = runs.filter((other) => other.view === "text" && other.name !== run.name);
  if (!others.length) return null;
  const other = select(others.map(({ name }) => [name, name]));
  const columns = h("div", { class: "pair" });

  async function read(name, words, signal) {
    const page = h("div", { class: "page", role: "group", "aria-label": `The text as ${name} reads it` });
    const figures = h("p", { class: "muted" }, "Reading…");
    columns.append(h("div", {}, h("h3", {}, name), page, figures));
    let nats = 0;
    for await (const record of stream("playground/read", { run: name, text: words }, signal)) {
      if (record.label === undefined) continue;
      nats += record.nats;
      page.append(h("span", { class: `token ${colours(record.nats)}`, title: `${record.label}: ${record.nats.toFixed(2)} nats` }, record.text));
    }
    // Symbols differ between runs, characters do not.
    figures.textContent = `${nats.toFixed(1)} nats · ${(nats / Math.LN2 / [...words].length).toFixed(2)} bits a character`;
  }

  const compare = button("Read with both", async () => {
    const words = text();
    if (!words) return say("Write or paste a text first.");
    columns.replaceChildren();
    return job.run(async (signal) => {
      for (const name of [run.name, other.value]) await read(name, words, signal);
      say("Both have read the text.");
    });
  });
  return card("Two runs on the same text", h("p", { class: "muted" }, "The text is that of the prompt, or the one shown above."),
    field("The other run", other), h("div", { class: "buttons" }, compare), columns);
}

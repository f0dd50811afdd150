// Tables: a row with gaps, the distribution of each missing cell, and the exact probability of a whole row.
import { bars, button, card, field, h, job, linked, post, recall, remember, reveal, say, seedField, select, svg, tries } from "./dom.js";
import { elsewhere, linkTo, savable, ways } from "./share.js";

const SHOWN = 8; // categories of a distribution

export function tableView(run) {
  const { columns } = run.facts;
  const seed = seedField();
  const draws = select([[50, "50"], [200, "200"], [1000, "1,000"]]);
  draws.value = linked("draws") ?? 200;
  const stop = button("Stop", () => job.stop(), { disabled: true, title: "Escape" });
  const results = h("div", { class: "results", "aria-live": "polite" });
  const kept = JSON.parse(linked("cells") ?? "null") ?? recall(run.name, "cells", gap(run.examples[0] ?? {}));
  const inputs = columns.map((column) => {
    const input = column.kind === "categorical"
      ? select([["", "—"], ...column.categories.map((name) => [name, name])])
      : column.kind === "date"
        ? h("input", { type: "text", placeholder: column.low })
        : h("input", { type: "number", step: "any", placeholder: "—", inputmode: "decimal" });
    input.value = kept[column.name] ?? "";
    input.addEventListener("change", () => remember(run.name, "cells", cells()));
    return input;
  });

  const cells = () => Object.fromEntries(columns.map((column, place) => [column.name, inputs[place].value]).filter(([, cell]) => cell !== ""));
  const set = (row) => {
    columns.forEach((column, place) => { inputs[place].value = row[column.name] ?? ""; });
    remember(run.name, "cells", cells());
  };

  const use = (row) => { set(row); say("The row is in the form."); };

  const fillIn = () => job.run(async (signal) => {
    say("Drawing completions…");
    const given = cells();
    const found = await post("playground/complete-row", { run: run.name, cells: given, n: Number(draws.value), seed: seed.next() }, signal);
    if (!found.columns.length) return score();
    const sure = found.effective === null
      ? `${found.n} exact draws: every given column comes before the missing ones in the model's order.`
      : `${found.n} completions by importance resampling; the one with fewest draws behind it rests on ${found.effective.toFixed(1)} of 64.` + (found.effective < 2 ? " What you gave is improbable together: read these figures with care." : "");
    results.replaceChildren(
      card("Missing columns", h("p", { class: "muted" }, sure), h("div", { class: "cards" }, found.columns.map(distribution))),
      card("Completed rows", h("p", { class: "muted" }, "Choose one to put it into the form."), rowsTable(found.rows, found.columns.map(({ name }) => name), columns.map(({ name }) => name), use)));
    if (shown) reveal(results);
    shown = true;
    say(`Filled in ${found.columns.length} column${found.columns.length > 1 ? "s" : ""}, ${found.n} times.`);
  }, { stop });

  const score = () => job.run(async (signal) => {
    const found = await post("playground/score-row", { run: run.name, cells: cells() }, signal);
    const rows = found.columns.map(({ name, nats }) => [name, Math.max(nats, 0), nats.toFixed(2)]);
    results.replaceChildren(card("Probability of the row",
      h("p", {}, h("strong", {}, `log p = ${(-found.nats).toFixed(3)} nats`), h("span", { class: "muted" }, columns.some((column) => column.kind === "real") ? ", exact; columns of real numbers count by density" : ", exact")),
      h("p", { class: "muted" }, "Surprise of each cell given those before it in the model's order, nats:"), bars(rows)));
    say(`log p = ${(-found.nats).toFixed(3)} nats.`);
  }, { stop });

  const scoreWhole = () => {
    const gaps = columns.filter((_, place) => inputs[place].value === "").length;
    return gaps ? say(`${gaps} cell${gaps > 1 ? "s are" : " is"} missing: fill ${gaps > 1 ? "them" : "it"} in first.`) : score();
  };

  const random = () => job.run(async (signal) => {
    set((await post("playground/sample-row", { run: run.name, seed: seed.next() }, signal)).row);
    say("Drew a row. Clear some cells and fill them in again.");
  }, { stop });

  let shown = false;
  // The row without its last cell: the model fills that in.
  function gap(row) {
    const { [columns.at(-1).name]: _, ...others } = row;
    return others;
  }
  const own = (row) => { set(gap(row)); return fillIn(); };
  if (Object.keys(kept).length) fillIn();
  const codes = () => ways(run, "predict", {}, { argument: " rows.csv   # empty cells are predicted", first: [`pandas.DataFrame([${JSON.stringify(cells())}])`], body: { data: [cells()] } });
  const clear = () => { set({}); results.replaceChildren(); say("All cells are empty."); };
  return h("div", {},
    card("A row", h("p", { class: "muted" }, "Leave gaps: the model fills them in, given the rest."),
      tries(run.examples, own, (row) => Object.values(row).slice(0, 4).join(", ")),
      h("div", { class: "form" }, columns.map((column, place) => field(column.name, inputs[place]))),
      h("div", { class: "row" }, field("Draws", draws), seed.element),
      h("div", { class: "buttons" }, button("Fill in the gaps", fillIn, { class: "primary" }), button("Probability", scoreWhole), button("A random row", random), button("Clear", clear), linkTo(run, () => ({ cells: JSON.stringify(cells()), draws: draws.value, seed: seed.input.value })), stop)),
    results, elsewhere(run, codes));
}

// Rows, the drawn columns first; with a function that uses one, a button for each.
function rowsTable(rows, drawn, all = drawn, use = null) {
  const names = [...drawn, ...all.filter((name) => !drawn.includes(name))];
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {},
    h("thead", {}, h("tr", {}, use && h("td", {}), names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row, place) => h("tr", {},
      use && h("td", {}, button("Use", () => use(row), { "aria-label": `Use row ${place + 1}` })),
      names.map((name) => h("td", { class: use && drawn.includes(name) ? "drawn" : "" }, row[name])))))));
}

function distribution(column) {
  if (column.kind === "categorical") {
    const shown = column.shares.slice(0, SHOWN).map(([name, share]) => [name || "(missing)", share]);
    const rest = column.shares.slice(SHOWN).reduce((sum, [, share]) => sum + share, 0);
    return h("div", { class: "distribution" }, h("h3", {}, column.name), bars(rest ? [...shown, [`${column.shares.length - SHOWN} others`, rest]] : shown));
  }
  if (!column.bins.length) return h("div", { class: "distribution" }, h("h3", {}, column.name), bars([["(missing)", 1]]));
  const most = Math.max(...column.bins);
  const wide = 240 / column.bins.length;
  // Whole numbers as they are (years have no thousands), others with four digits.
  const format = (value) => typeof value === "string" ? value : column.kind === "integer" ? String(Math.round(value)) : String(Number(value.toPrecision(4)));
  const [low, middle, high] = column.quantiles.map(format);
  const whole = column.kind === "integer"; // whose bins end between whole numbers
  const ends = [whole ? Math.ceil(column.edges[0]) : column.edges[0], whole ? Math.floor(column.edges.at(-1)) : column.edges.at(-1)].map(format);
  const words = `median ${middle}, 80% from ${low} to ${high}`;
  const chart = svg("svg", { viewBox: "0 0 240 84", role: "img", "aria-label": `${column.name}: ${words}`, class: "histogram" },
    column.bins.map((share, place) => svg("rect", { x: place * wide + 0.5, y: 70 - 66 * share / most, width: Math.max(wide - 1, 0.5), height: 66 * share / most })),
    svg("line", { x1: 0, x2: 240, y1: 70.5, y2: 70.5 }),
    svg("text", { x: 0, y: 82 }, ends[0]), svg("text", { x: 240, y: 82, "text-anchor": "end" }, ends[1]));
  return h("div", { class: "distribution" }, h("h3", {}, column.name), savable(chart, column.name), h("p", { class: "muted" }, words + (column.missing ? `; missing in ${Math.round(100 * column.missing)}%` : "")));
}

// Figures with sliders: each reads its numbers from the page and needs no server. A slider is moved with the pointer or the arrow keys.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const put = (svg, kind, attributes, words) => {
    const node = document.createElementNS(NS, kind);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (words !== undefined) node.textContent = words;
    svg.append(node);
  };
  const text = (svg, x, y, words, anchor = "middle", colour = "ink") =>
    put(svg, "text", {x, y, style: `font-size:13px;text-anchor:${anchor};fill:var(--${colour})`}, words);
  const bar = (svg, x, y, width, height, colour, opacity) =>
    put(svg, "rect", {x, y, width: Math.max(width, 0), height: Math.max(height, 0), fill: `var(--${colour})`, "fill-opacity": opacity});
  const line = (svg, points, colour, dashed = "") =>
    put(svg, "polyline", {points: points.map(p => p.join()).join(" "), fill: "none", stroke: `var(--${colour})`,
      "stroke-width": 2, "stroke-dasharray": dashed});
  const softmax = scores => {
    const most = Math.max(...scores), parts = scores.map(s => Math.exp(s - most)), sum = parts.reduce((a, b) => a + b);
    return parts.map(p => p / sum);
  };
  const log2 = x => (x > 0 ? Math.log2(x) : 0);

  const FIGURES = {
    // What temperature, top-k and top-p leave of a distribution.
    truncation: {
      controls: data => [["temperature", 0.1, 2, 0.05, 1], ["top-k", 1, data.names.length, 1, data.names.length], ["top-p", 0.05, 1, 0.05, 1]],
      draw(svg, data, [temperature, k, share]) {
        const p = softmax(data.log_p.map(l => l / temperature)), order = p.map((_, i) => i).sort((a, b) => p[b] - p[a]);
        let sum = 0;
        const kept = new Set(order.filter((i, rank) => { const keep = rank < k && sum < share; sum += p[i]; return keep; }));
        const total = [...kept].reduce((a, i) => a + p[i], 0), q = p.map((x, i) => (kept.has(i) ? x / total : 0));
        data.names.forEach((name, i) => {
          const x = 12 + i * 418 / data.names.length, width = 418 / data.names.length - 4;
          bar(svg, x, 190 - 160 * Math.exp(data.log_p[i]), width, 160 * Math.exp(data.log_p[i]), "grey", 0.35);
          bar(svg, x + 3, 190 - 160 * q[i], width - 6, 160 * q[i], "blue", 0.75);
          text(svg, x + width / 2, 208, name);
        });
        const entropy = -q.reduce((a, x) => a + x * log2(x), 0);
        return `${kept.size} symbols kept, entropy ${entropy.toFixed(2)} bits`;
      },
    },
    // Norm of the powers of [[r, s], [0, r]] beside r to the k.
    powers: {
      controls: () => [["spectral radius", 0.5, 1.2, 0.01, 0.9], ["coupling", 0, 2, 0.05, 1]],
      draw(svg, data, [r, s]) {
        const norm = k => {
          const a = r ** k, b = k ? k * r ** (k - 1) * s : 0, sum = 2 * a * a + b * b;
          return Math.sqrt((sum + Math.sqrt(Math.max(sum * sum - 4 * a ** 4, 0))) / 2);
        };
        const at = (k, value) => [30 + 10 * k, 110 - 18 * Math.max(Math.min(Math.log10(value), 5), -5)];
        line(svg, [[30, 110], [430, 110]], "grey", "2 4");
        const steps = Array.from({length: 41}, (_, k) => k);
        line(svg, steps.map(k => at(k, r ** k)), "orange", "6 4");
        line(svg, steps.map(k => at(k, norm(k))), "blue");
        text(svg, 26, 114, "1", "end"); text(svg, 230, 212, "steps back, 0 to 40; logarithmic scale");
        const peak = steps.reduce((best, k) => (norm(k) > norm(best) ? k : best), 0);
        return `largest norm ${norm(peak).toPrecision(3)} after ${peak} steps; after 40 steps ${norm(40).toPrecision(3)}, the radius says ${(r ** 40).toPrecision(3)}`;
      },
    },
    // Receptive field by depth, taps and dilation.
    reach: {
      controls: () => [["layers", 1, 10, 1, 4], ["taps", 2, 4, 1, 2], ["doubling dilations (0 or 1)", 0, 1, 1, 1]],
      draw(svg, data, [layers, taps, doubling]) {
        const reach = 1 + (taps - 1) * (doubling ? 2 ** layers - 1 : layers), columns = 32;
        for (let i = 0; i < 160; i++)
          bar(svg, 14 + (i % columns) * 13, 20 + Math.floor(i / columns) * 26, 11, 20, i < reach ? "blue" : "grey", i < reach ? 0.75 : 0.15);
        text(svg, 220, 180, reach > 160 ? `the first 160 of ${reach.toLocaleString("en")} samples` : "each cell is a sample");
        return `one output sees ${reach.toLocaleString("en")} samples`;
      },
    },
    // Weights of random keys with and without the root of d.
    root: {
      controls: () => [["features d, as a power of two", 0, 10, 1, 6]],
      draw(svg, data, [power]) {
        const d = 2 ** power, width = 418 / data.z.length;
        const largest = [["without the root", Math.sqrt(d), 92, "red"], ["with the root", 1, 192, "blue"]].map(([name, scale, base, colour]) => {
          const weights = softmax(data.z.map(z => z * scale));
          weights.forEach((w, i) => bar(svg, 12 + i * width, base - 70 * w, width - 3, 70 * w + 1, colour, 0.7));
          text(svg, 220, base + 16, name, "middle", colour);
          return Math.max(...weights).toFixed(2);
        });
        return `d = ${d}: largest weight ${largest[0]} without the root, ${largest[1]} with it`;
      },
    },
    // Decoded codes on a grid of the plane.
    plane: {
      controls: data => [["z₁", 0, data.side - 1, 1, Math.floor(data.side / 2)], ["z₂", 0, data.side - 1, 1, Math.floor(data.side / 2)]],
      draw(svg, data, [across, up]) {
        const start = (up * data.side + across) * data.pixels, row = Math.sqrt(data.pixels);
        for (let i = 0; i < data.pixels; i++)
          bar(svg, 130 + (i % row) * 22, 12 + Math.floor(i / row) * 22, 22, 22, "ink", Number(data.images[start + i]) / 9);
        const value = index => (-data.limit + 2 * data.limit * index / (data.side - 1)).toFixed(1);
        return `z = (${value(across)}, ${value(up)})`;
      },
    },
    // Bits per toss of a coin p that is coded with q.
    price: {
      controls: () => [["the coin, p", 0.02, 0.98, 0.02, 0.7], ["the model, q", 0.02, 0.98, 0.02, 0.5]],
      draw(svg, data, [p, q]) {
        const cost = r => -p * log2(r) - (1 - p) * log2(1 - r), at = (r, bits) => [30 + 390 * r, 190 - 50 * Math.min(bits, 3.4)];
        const grid = Array.from({length: 97}, (_, i) => 0.02 + i * 0.01);
        line(svg, grid.map(r => at(r, cost(r))), "grey");
        line(svg, [at(0, cost(p)), at(1, cost(p))], "green", "6 4");
        const [x, y] = at(q, cost(q));
        put(svg, "circle", {cx: x, cy: y, r: 6, fill: "var(--blue)"});
        text(svg, 225, 210, "the model, q, from 0 to 1");
        return `${cost(q).toFixed(3)} bits a toss = entropy ${cost(p).toFixed(3)} + KL ${(cost(q) - cost(p)).toFixed(3)}`;
      },
    },
  };

  for (const figure of document.querySelectorAll("figure[data-figure]:not([data-drawn])")) {
    figure.dataset.drawn = "yes";
    const data = JSON.parse(figure.dataset.numbers), {controls, draw} = FIGURES[figure.dataset.figure];
    const svg = document.createElementNS(NS, "svg"), line = document.createElement("p"), box = document.createElement("div");
    svg.setAttribute("viewBox", "0 0 440 220");
    svg.setAttribute("aria-hidden", "true");
    line.setAttribute("aria-live", "polite");
    const inputs = controls(data).map(([name, min, max, step, value]) => {
      const label = document.createElement("label"), input = document.createElement("input"), shown = document.createElement("output");
      Object.assign(input, {type: "range", min, max, step, value});
      label.append(`${name} `, input, " ", shown);
      box.append(label);
      input.addEventListener("input", update);
      return [input, shown];
    });
    function update() {
      inputs.forEach(([input, shown]) => { shown.textContent = input.value; });
      svg.replaceChildren();
      line.textContent = draw(svg, data, inputs.map(([input]) => Number(input.value)));
    }
    figure.prepend(svg, box, line);
    update();
  }
})();

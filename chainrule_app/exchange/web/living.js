"use strict";
// A recurrent network of characters: weights of 8 bits, the forward pass, sampling, and the page around them.
// What it computes is what `log_prob` and `sample` of the run compute with the rounded weights.

const decode = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer;

// W[r, c] = scale[r] · q[r, c]; a bias has no q and is kept as it is.
const tensor = ({ shape, int8, float32 }) => {
  const scales = new Float32Array(decode(float32));
  if (!int8) return scales;
  const q = new Int8Array(decode(int8)), width = shape[1], values = new Float32Array(q.length);
  for (let i = 0; i < q.length; i++) values[i] = scales[Math.floor(i / width)] * q[i];
  return values;
};

// W x + b, for the rows from `first` on.
const times = (W, x, b, first = 0, rows = b.length) => {
  const y = new Float64Array(rows), width = x.length;
  for (let r = 0, at = first * width; r < rows; r++) {
    let sum = b[first + r];
    for (let c = 0; c < width; c++, at++) sum += W[at] * x[c];
    y[r] = sum;
  }
  return y;
};
const sigmoid = a => 1 / (1 + Math.exp(-a));
const FUNCTIONS = { tanh: Math.tanh, relu: a => Math.max(a, 0), sigmoid, identity: a => a };

// h_t (and c_t) from a = W_ih x_t + b_ih and b = W_hh h_{t-1} + b_hh; gates lie one after the other.
const CELLS = {
  rnn: (a, b, { h }, net) => ({ h: h.map((_, j) => FUNCTIONS[net.nonlinearity](a[j] + b[j])) }),
  lstm(a, b, { h, c }) {
    const M = h.length, next = { h: new Float64Array(M), c: new Float64Array(M) };
    for (let j = 0; j < M; j++) {
      const [i, f, g, o] = [0, M, 2 * M, 3 * M].map(gate => a[gate + j] + b[gate + j]);
      next.c[j] = sigmoid(f) * c[j] + sigmoid(i) * Math.tanh(g);
      next.h[j] = sigmoid(o) * Math.tanh(next.c[j]);
    }
    return next;
  },
  gru(a, b, { h }, net, { W_hh, b_hh }) {
    const M = h.length, r = h.map((_, j) => sigmoid(a[j] + b[j]));
    const n = net.reset_after ? b.subarray(2 * M).map((q, j) => r[j] * q) : times(W_hh, h.map((v, j) => r[j] * v), b_hh, 2 * M, M);
    return { h: h.map((v, j) => {
      const z = sigmoid(a[M + j] + b[M + j]);
      return (1 - z) * Math.tanh(a[2 * M + j] + n[j]) + z * v;
    }) };
  },
};

class Network {
  constructor(data) {
    Object.assign(this, data);
    const weights = Object.fromEntries(Object.entries(data.tensors).map(([name, value]) => [name, tensor(value)]));
    this.symbols = ["\uFFFD", ...data.characters]; // number 0 is any character that was not in the training text
    this.numbers = new Map(this.symbols.map((symbol, number) => [symbol, number]));
    this.layers = Array.from({ length: data.num_layers }, (_, l) => ({
      W_ih: weights[`weight_ih_l${l}`], W_hh: weights[`weight_hh_l${l}`], b_ih: weights[`bias_ih_l${l}`], b_hh: weights[`bias_hh_l${l}`],
    }));
    this.W_ho = weights.weight_ho ?? weights.embedding; // tied weights
    this.b_ho = weights.bias_ho;
    // W_ih E[symbol] + b_ih of every symbol; without an embedding, symbols are one-hot vectors.
    const V = this.symbols.length, [{ W_ih, b_ih }] = this.layers, width = weights.embedding ? weights.embedding.length / (V + 1) : V + 1;
    const vector = s => weights.embedding ? weights.embedding.subarray(s * width, (s + 1) * width) : Float32Array.from({ length: width }, (_, i) => +(i === s));
    this.table = Array.from({ length: V + 1 }, (_, s) => times(W_ih, vector(s), b_ih));
  }

  // The state and the log-probabilities of the first character, which follows the start symbol V.
  start() {
    const zeros = () => new Float64Array(this.hidden_size);
    return this.step(this.symbols.length, this.layers.map(() => (this.cell === "lstm" ? { h: zeros(), c: zeros() } : { h: zeros() })));
  }

  // The state after a symbol, and log p of each symbol that may follow.
  step(symbol, state) {
    if (symbol === this.eos) return this.start(); // every line is a text of its own
    let x, parts = state.parts ?? state;
    parts = this.layers.map((layer, l) => {
      const a = l ? times(layer.W_ih, x, layer.b_ih) : this.table[symbol], b = times(layer.W_hh, parts[l].h, layer.b_hh);
      const next = CELLS[this.cell](a, b, parts[l], this, layer);
      x = next.h;
      return next;
    });
    const scores = times(this.W_ho, x, this.b_ho), most = scores.reduce((a, b) => Math.max(a, b));
    const normaliser = most + Math.log(scores.reduce((sum, s) => sum + Math.exp(s - most), 0));
    return { parts, logs: scores.map(s => s - normaliser) };
  }

  number(character) { return this.numbers.get(character) ?? 0; }

  // log p of every symbol at every place of a text, and after its last.
  conditionals(text) {
    const places = [this.start()];
    for (const character of text) places.push(this.step(this.number(character), places.at(-1)));
    return places.map(place => Array.from(place.logs));
  }

  // A symbol that was seen in training, drawn from softmax(log p / temperature).
  draw(logs, temperature, random = Math.random) {
    const shares = logs.map((l, s) => (s ? Math.exp(l / temperature) : 0));
    let rest = random() * shares.reduce((a, b) => a + b), symbol = 0;
    while (symbol < shares.length - 1 && (rest -= shares[symbol]) >= 0) symbol++;
    return symbol;
  }
}

const network = new Network(JSON.parse(document.getElementById("network").textContent));
const find = id => document.getElementById(id);
const [input, mirror, sum, list, write, warmth] = ["text", "mirror", "sum", "likeliest", "write", "temperature"].map(find);
const shown = symbol => ({ " ": "␣", "\n": "↵", "\t": "⇥" })[symbol] ?? symbol, named = symbol => ({ " ": "space", "\n": "line end", "\t": "tab", "\uFFFD": "a character never seen" })[symbol] ?? symbol;
const percent = p => (p < 0.0005 ? "< 0.1%" : `${(100 * p).toFixed(1)}%`), bits = nats => nats / Math.LN2;
let characters = [], places = [network.start()], costs = [], writing = 0, reading = 0;

// Read what changed, for some milliseconds at a time, so that typing stays smooth.
const read = () => {
  const now = [...input.value];
  let same = 0;
  while (same < now.length && now[same] === characters[same]) same++;
  characters = now;
  places.length = Math.min(places.length, same + 1);
  costs.length = places.length - 1;
  paint(costs.length);
  cancelAnimationFrame(reading);
  extend();
};
const extend = () => {
  const first = costs.length, until = performance.now() + 12;
  while (costs.length < characters.length && performance.now() < until) {
    const symbol = network.number(characters[costs.length]);
    costs.push(-bits(places.at(-1).logs[symbol]));
    places.push(network.step(symbol, places.at(-1)));
  }
  paint(first);
  if (costs.length < characters.length) reading = requestAnimationFrame(extend);
};

const paint = first => {
  while (mirror.childNodes.length > first) mirror.lastChild.remove();
  mirror.append(...characters.slice(first).map((character, i) => {
    const span = document.createElement("span"), cost = costs[first + i] ?? 0;
    span.textContent = character;
    span.style.setProperty("--heat", Math.min(cost / 12, 1) ** 2);
    return span;
  }), "\u200B"); // holds an empty last line open
  const total = costs.reduce((a, b) => a + b, 0);
  sum.textContent = costs.length ? `${costs.length.toLocaleString("en")} characters, ${total.toFixed(1)} bits: ${(total / costs.length).toFixed(2)} bits a character` : "Nothing is written yet.";
  rank();
};

// The ten likeliest characters at the caret.
const caret = () => [...input.value.slice(0, input.selectionStart)].length;
const rank = () => {
  const at = Math.min(caret(), places.length - 1), { logs } = places[at], next = characters[at];
  const best = Array.from(logs, (l, s) => [l, s]).sort(([a], [b]) => b - a).slice(0, 10);
  find("where").textContent = next === undefined ? "The ten likeliest next characters" : `The ten likeliest characters here, where “${shown(next)}” costs ${costs[at]?.toFixed(1) ?? "…"} bits`;
  if (list.children.length !== best.length) list.replaceChildren(...best.map(() => {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.append(document.createElement("b"), " ", document.createElement("span"));
    button.addEventListener("click", () => insert(button.value));
    item.append(button);
    return item;
  }));
  best.forEach(([log, symbol], i) => {
    const button = list.children[i].firstChild, p = Math.exp(log), character = network.symbols[symbol];
    button.value = character;
    button.disabled = symbol === 0;
    button.style.setProperty("--share", p);
    if (named(character) === character) button.removeAttribute("aria-label");
    else button.setAttribute("aria-label", `${named(character)}, ${percent(p)}`);
    button.firstChild.textContent = shown(character);
    button.lastChild.textContent = percent(p);
    button.parentNode.classList.toggle("came", character === next);
  });
};

const insert = text => {
  input.setRangeText(text, input.selectionStart, input.selectionStart, "end");
  read();
};

// "Write on": the network's own continuation at the end of the text, as it is drawn.
const stop = () => {
  writing = 0;
  write.textContent = "Write on";
};
const append = () => {
  if (!writing || input.value.length >= input.maxLength) return stop();
  if (costs.length === characters.length) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let place = places.at(-1), drawn = "";
    for (let i = 0; i < (still ? writing : 1); i++) {
      const symbol = network.draw(place.logs, warmth.valueAsNumber);
      drawn += network.symbols[symbol];
      place = network.step(symbol, place);
    }
    writing -= [...drawn].length;
    input.value += drawn;
    input.setSelectionRange(input.value.length, input.value.length);
    read();
  }
  requestAnimationFrame(append);
};

write.addEventListener("click", () => {
  if (writing) return stop();
  writing = 240;
  write.textContent = "Stop";
  append();
});
warmth.addEventListener("input", () => { find("warmth").textContent = warmth.valueAsNumber.toFixed(2); });
input.addEventListener("input", () => { stop(); read(); });
document.addEventListener("selectionchange", () => { if (document.activeElement === input && !writing) rank(); });
document.addEventListener("keydown", event => { if (event.key === "Escape") stop(); });
const show = text => {
  stop();
  input.value = text;
  input.setSelectionRange(text.length, text.length);
  read();
};
find("clear").addEventListener("click", () => { show(""); input.focus(); });
find("again").addEventListener("click", () => show(network.text));
// A page that holds this one in a frame says its theme, and is told the height.
addEventListener("message", ({ data }) => { if (["light", "dark"].includes(data?.theme)) document.documentElement.style.colorScheme = data.theme; });
if (parent !== window) new ResizeObserver(() => parent.postMessage({ height: document.body.scrollHeight }, "*")).observe(document.body);
show(network.text);

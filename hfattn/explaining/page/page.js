// The script of the page of an attention record: T target words attend to S source words, in L layers of H heads. A
// word is a token, or all tokens of a word if they are merged.
const allT = record.target_tokens.length, allS = record.tokens.length, [L, H] = record.shape;
const cross = record.kind === "cross";

const WORDS = {
  en: {
    play: "▶ Play", stop: "■ Stop", views: "View of the texts", lines: "Lines", flow: "Flow",
    layer: "Layer", head: "Head", limit: "Threads from", texts: "Texts", map: "Heat map", all: "Layers and heads",
    ranges: "The colors of each map span its own range. Choose a map with a click or the arrow keys; L1 and H1 are "
      + "layer=0 and head=0 of the record.",
    source: cross ? "Source" : "Attended to", target: cross ? "Target" : "Attending",
    hint: (cross
      ? "Point at a target word to see which source words it attends to, or at a source word to see which target "
        + "words attend to it. "
      : "Point at a word to see what it attends to, or what attends to it. ")
      + "The arrow keys move along a text and from one text to the other.",
    answer: "What the answer depends on; attention, below, shows where the model looked",
    forward: " attends to ", backward: " is attended to by ",
    nothing: "nothing", mean: "mean", meanOf: size => `mean of ${size}`,
    oneLayer: l => l < 0 ? "mean of the layers" : `layer ${l + 1}`,
    oneHead: h => h < 0 ? "mean of the heads" : `head ${h + 1}`,
    rounded: levels => `To keep this page small, the weights of this map are rounded to ${levels} levels; point at one `
      + "to see its bounds.",
    bounds: (low, high) => `${low} to ${high}`,
    strongest: (some, all) => `the strongest ${some} of ${all}`,
    sizes: () => `Weights of ${T} target tokens (rows) on ${S} source tokens (columns).`,
    merge: "Merge words", hide: "Hide special tokens", paint: "A color for each head", save: "Save the map",
    merged: "The weights on the tokens of a source word are summed; the rows of the tokens of a target word are "
      + "averaged. ",
    hidden: "The hidden tokens keep their weights, so a row may add up to less than 100\u202f%.",
    chance: "The number below a target word is its probability, given the words before it.",
    chances: (share, nats) => ` (probability ${share}, entropy ${nats} nats)`,
    old: "This page needs a browser from 2023 or later.",
  },
  es: {
    play: "▶ Ver", stop: "■ Parar", views: "Vista de los textos", lines: "Líneas", flow: "Flujo",
    layer: "Capa", head: "Cabeza", limit: "Hilos desde", texts: "Textos", map: "Mapa de calor", all: "Capas y cabezas",
    ranges: "Los colores de cada mapa abarcan su propio intervalo. Elige un mapa con un clic o con las flechas; L1 y "
      + "H1 son layer=0 y head=0 del registro.",
    source: cross ? "Origen" : "Palabras atendidas", target: cross ? "Destino" : "Palabras que atienden",
    hint: (cross
      ? "Señala una palabra del destino para ver a qué palabras del origen atiende, o una del origen para ver qué "
        + "palabras del destino la atienden. "
      : "Señala una palabra para ver a cuáles atiende o cuáles la atienden. ")
      + "Con las flechas recorres un texto y pasas de uno a otro.",
    answer: "De qué depende la respuesta; la atención, abajo, muestra dónde miró el modelo",
    forward: " atiende a ", backward: " recibe atención de ",
    nothing: "nada", mean: "media", meanOf: size => `media de ${size}`,
    oneLayer: l => l < 0 ? "media de las capas" : `capa ${l + 1}`,
    oneHead: h => h < 0 ? "media de las cabezas" : `cabeza ${h + 1}`,
    rounded: levels => `Para que esta página ocupe poco, los pesos de este mapa están redondeados a ${levels} niveles; `
      + "señala uno para ver sus límites.",
    bounds: (low, high) => `de ${low} a ${high}`,
    strongest: (some, all) => `los ${some} más fuertes de ${all}`,
    sizes: () => `Pesos de ${T} tokens del destino (filas) sobre ${S} tokens del origen (columnas).`,
    merge: "Unir palabras", hide: "Ocultar tokens especiales", paint: "Un color por cabeza", save: "Guardar el mapa",
    merged: "Los pesos sobre los tokens de una palabra del origen se suman; las filas de los tokens de una palabra del "
      + "destino se promedian. ",
    hidden: "Los tokens ocultos conservan sus pesos, así que una fila puede sumar menos del 100\u202f%.",
    chance: "El número debajo de una palabra del destino es su probabilidad, dadas las palabras anteriores.",
    chances: (share, nats) => ` (probabilidad ${share}, entropía ${nats} nats)`,
    old: "Esta página necesita un navegador de 2023 o posterior.",
  },
};
const say = WORDS[language];
speak(say);
at("play").textContent = say.play;

// The words of both texts. "members" are the places of the tokens of each word.
const sides = Object.fromEntries([["source", record.tokens], ["target", record.target_tokens]].map(([side, tokens]) => [
  side, { name: say[side], rtl: record.right_to_left[side], special: new Set(record.special[side]), every: tokens },
]));
let T, S, merging = false, hiding = false;
function arrange() {
  for (const [name, side] of Object.entries(sides)) {
    let words = merging && record.words ? record.words[name] : side.every.map((token, place) => [token, [place]]);
    const ordinary = words.filter(([, members]) => !side.special.has(members[0]));
    if (hiding && ordinary.length) words = ordinary;
    side.tokens = words.map(([word]) => word);
    side.members = words.map(([, members]) => members);
  }
  [T, S] = [sides.target.tokens.length, sides.source.tokens.length];
}
const special = (side, index) => sides[side].special.has(sides[side].members[index][0]);
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;
function chances(index) {  // the probability of a target word: the product of those of its tokens; and the mean entropy
  const of = name => sides.target.members[index].map(place => record[name][place]);
  return [of("probabilities").reduce((product, value) => product * value, 1), mean(of("entropies"))];
}
arrange();

let shades, colors;  // the 256 steps of the ramp, as pixels and as CSS
function mix() {
  const parts = hex => [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16));
  const ramp = record.ramps[root.dataset.theme].map(parts);
  const last = ramp.length - 1;
  const mixed = Array.from({ length: 256 }, (_, k) => {
    const place = last * k / 255, low = Math.min(last - 1, Math.floor(place));
    return ramp[low].map((c, i) => Math.round(c + (ramp[low + 1][i] - c) * (place - low)));
  });
  shades = new Uint32Array(new Uint8Array(mixed.flatMap(color => [...color, 255])).buffer);
  colors = mixed.map(color => `rgb(${color.join(" ")})`);
  at("ramp").style.background = `linear-gradient(to right, ${[0, 51, 102, 153, 204, 255].map(k => colors[k])})`;
}
const shade = share => Math.round(255 * Math.min(1, Math.max(0, share)));
const about = record.parts ? "≈\u202f" : "";
const percent = value => {
  const text = (100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0);
  return `${about}${text}\u202f%`;
};

// Weights. Many of them are packed by render.py: each byte holds the levels of several weights, as digits of a number.
async function inflate(part) {
  const packed = Uint8Array.from(atob(part.data), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  part.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  delete part.data;
}
function place(l, h) {
  if (L === 1) l = 0;
  if (H === 1) h = 0;
  if (l < 0) return h < 0 ? ["all", 0] : ["layers", h];
  return h < 0 ? ["heads", l] : ["weights", l * H + h];
}
const pick = (items, index) => index < 0 ? items : [items[index]];
function matrix(l, h) {  // T * S weights of the words, row by row; -1 is the mean over all layers or heads
  const all = ofTokens(l, h);
  if (!merging && !hiding) return all;
  const out = new Float32Array(T * S);
  sides.target.members.forEach((rows, i) => sides.source.members.forEach((columns, j) => {
    let sum = 0;
    for (const row of rows) for (const column of columns) sum += all[row * allS + column];
    out[i * S + j] = sum / rows.length;
  }));
  return out;
}
function ofTokens(l, h) {
  if (!record.parts) {
    const chosen = pick(record.weights, l).flatMap(ofLayer => pick(ofLayer, h)), sum = new Float64Array(allT * allS);
    for (const rows of chosen) rows.forEach((row, i) => row.forEach((w, j) => { sum[i * allS + j] += w; }));
    return Float32Array.from(sum, w => w / chosen.length);
  }
  const [name, index] = place(l, h), { levels, per_byte: each, values, bytes } = record.parts[name];
  const length = Math.ceil(allT * allS / each), start = index * length, out = new Float32Array(length * each);
  for (let b = 0, o = 0; b < length; b++) {
    let rest = bytes[start + b];
    for (let k = 0; k < each; k++) {
      out[o++] = values[rest % levels];
      rest = (rest / levels) | 0;
    }
  }
  return out.subarray(0, allT * allS);
}
function bounds(weight) {  // of the value that was rounded to this weight
  if (!record.parts || merging || weight === 0) return "";
  const { edges } = record.parts[place(layer, head)[0]];
  const last = edges.length - 1, found = edges.findIndex(edge => weight <= edge * (1 + 1e-6));
  const above = found < 0 ? last : Math.max(1, found);  // the largest weight may exceed the last edge by its rounding
  const digits = edges[above] < 0.01 ? 2 : 1, unit = 10 ** digits;
  const text = (round, edge) => (round(100 * edge * unit) / unit).toFixed(digits);
  return ` (${say.bounds(text(Math.floor, edges[above - 1]), text(Math.ceil, edges[above]))}\u202f%)`;
}
function range(values) {
  let least = 0, most = 1e-12;
  for (const value of values) {
    if (value > most) most = value;
    if (value < least) least = value;
  }
  return [least, most];
}

let layer = -1, head = -1, weights, least, most, flowing = false, threshold = null, flow = [];
let active = { side: "target", index: 0 }, pinned = false, timer = null, asked = false;
const other = side => side === "source" ? "target" : "source";
const seenFrom = (side, index, own = weights) => side === "target"
  ? own.subarray(index * S, (index + 1) * S) : Float32Array.from({ length: T }, (_, i) => own[i * S + index]);
const written = () => timer ? active.index : T - 1;  // the last row that the playback has reached

function choose(l, h) {
  [layer, head] = [l, h];
  weights = matrix(layer, head);
  [least, most] = range(weights);
  at("least").textContent = least ? percent(least) : "0";
  at("most").textContent = percent(most);
  at("layer").value = layer;
  at("head").value = head;
  for (const { button, l, h } of thumbs) {
    const chosen = l === layer && h === head;
    button.setAttribute("aria-pressed", chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
  const part = record.parts?.[place(layer, head)[0]];
  if (part) at("note").textContent = say.rounded(part.levels);
  chooseSeries();
  chooseThreads();
}

// Lines in several colors: one for each head of the layer, or for each layer if it has one head.
let painted = false, series = [];
function chooseSeries() {
  const known = Object.fromEntries(series.map(({ name, on }) => [name, on]));
  const all = Array.from({ length: H > 1 ? H : L }, (_, k) => H > 1 ? [layer, k] : [k, head]);
  series = !painted ? [] : all.map(([l, h], k) => {
    const name = H > 1 ? `H${k + 1}` : `L${k + 1}`, color = `oklch(0.66 0.15 ${30 + 360 * k / all.length})`;
    return { name, weights: matrix(l, h), color, on: known[name] ?? true };
  });
  at("legend").hidden = !painted || flowing;
  at("legend").replaceChildren(...series.map(one => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = one.name;
    button.style.setProperty("--color", one.color);
    button.setAttribute("aria-pressed", one.on);
    button.addEventListener("click", () => {
      one.on = !one.on;
      button.setAttribute("aria-pressed", one.on);
      repaint();
    });
    return button;
  }));
}

// The threads of the flow view: those above the threshold, and no more than a reader can tell apart.
const MOST_THREADS = 4000;
function chooseThreads() {
  if (!flowing) return;
  const sorted = Float32Array.from(weights).sort(), from = k => sorted[Math.max(0, sorted.length - k)];
  if (threshold === null) {
    at("threshold").value = 100 * Math.sqrt(Math.max(0, from(Math.max(2, Math.round(2.5 * Math.max(T, S))))) / most);
  }
  const wanted = (at("threshold").value / 100) ** 2 * most, limit = Math.max(wanted * 0.9999, from(MOST_THREADS));
  let count = 0;
  flow = [];
  weights.forEach((weight, k) => {
    if (weight >= wanted * 0.9999 && weight > 0) count++;
    if (weight >= limit && weight > 0 && flow.length < MOST_THREADS) flow.push(k);
  });
  flow.sort((a, b) => weights[a] - weights[b]);
  const told = flow.length < count ? say.strongest(flow.length, count) : count;
  at("count").textContent = `${percent(wanted)}: ${told}`;
}

function build(side) {
  const list = at(side);
  list.replaceChildren();
  sides[side].buttons = sides[side].tokens.map((token, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dir = "auto";
    button.tabIndex = side === "target" && index === 0 ? 0 : -1;
    button.title = token;
    for (const c of shown(token)) {
      const last = button.lastChild, blank = "␣↵⇥∅".includes(c);
      if (blank) {
        const mark = document.createElement("span");
        mark.className = "blank";
        mark.textContent = c;
        button.append(mark);
      } else if (last && last.nodeType === Node.TEXT_NODE) last.data += c;
      else button.append(c);
    }
    button.classList.toggle("special", special(side, index));
    button.addEventListener("pointerenter", event => {
      if (!pinned && !timer && event.pointerType === "mouse") show(side, index);
    });
    button.addEventListener("focus", () => { if (!timer) show(side, index); });
    button.addEventListener("click", () => {
      stop();
      pinned = !(pinned && active.side === side && active.index === index);
      show(side, index);
    });
    const item = document.createElement("li");
    item.append(button);
    if (side === "target" && record.probabilities) {
      const [share, nats] = chances(index), strip = element("small", percent(share));
      strip.style.setProperty("--share", share);
      strip.title = say.chances(percent(share), nats.toFixed(2)).trim();
      item.append(strip);
    }
    list.append(item);
    return button;
  });
}
function listen(side) {
  const list = at(side);
  at(`${side}-name`).textContent = sides[side].name;
  list.addEventListener("scroll", repaint);
  list.addEventListener("keydown", event => {
    const { side: current, index } = active, rtl = sides[current].rtl, last = sides[current].tokens.length - 1;
    // In the flow view, the words of a text are below each other and the other text is beside it.
    const [forward, backward, toTarget, toSource] = flowing ? ["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"]
      : [rtl ? "ArrowLeft" : "ArrowRight", rtl ? "ArrowRight" : "ArrowLeft", "ArrowDown", "ArrowUp"];
    let next = null;
    if (event.key === forward) next = [current, Math.min(last, index + 1)];
    else if (event.key === backward) next = [current, Math.max(0, index - 1)];
    else if (event.key === "Home") next = [current, 0];
    else if (event.key === "End") next = [current, last];
    else if (event.key === (current === "target" ? toSource : toTarget)) {
      const seen = seenFrom(current, index);
      next = [other(current), seen.indexOf(Math.max(...seen))];
    } else if (event.key === "Escape") { pinned = false; return; }
    if (!next) return;
    event.preventDefault();
    stop();
    sides[next[0]].buttons[next[1]].focus({ preventScroll: true });
  });
}

// Scroll the box of a text, not the page, until a word is visible.
function reveal(side, index) {
  const box = flowing ? at("scroller") : at(side), outer = box.getBoundingClientRect();
  const inner = sides[side].buttons[index].getBoundingClientRect();
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top + 6;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom + 6;
}

function show(side, index, fromMap = false) {
  active = { side, index };
  const seen = seenFrom(side, index), far = other(side), greatest = range(seen)[1];
  const turn = dark() ? 0.66 : 0.9;  // above this share, the other text color is more legible
  for (const name of ["source", "target"]) {
    sides[name].buttons.forEach((button, k) => {
      const weight = name === far ? Math.max(0, seen[k]) / Math.max(greatest, most / 4) : 0, text = weight.toFixed(3);
      if (button.style.getPropertyValue("--weight") !== text) button.style.setProperty("--weight", text);
      button.classList.toggle("strong", weight > turn);
      button.classList.toggle("active", name === side && k === index);
      button.tabIndex = name === side && k === index ? 0 : -1;
    });
  }
  const order = [...seen].map((weight, k) => [weight, k]).sort((a, b) => b[0] - a[0]);
  const top = order.slice(0, 5).filter(pair => pair[0] >= Math.min(0.01, 0.3 * most));
  const readout = at("readout");
  const verb = side === "target" ? say.forward : say.backward;
  readout.replaceChildren(element("b", cut(sides[side].tokens[index], 24)));
  if (side === "target" && record.probabilities) {
    const [share, nats] = chances(index);
    readout.append(element("span", say.chances(percent(share), nats.toFixed(2))));
  }
  readout.append(verb);
  top.forEach(([weight, k], n) => {
    const entry = element("span", "");
    entry.append(element("strong", cut(sides[far].tokens[k], 24)), ` ${percent(weight)}`);
    readout.append(n ? " · " : "", entry);
  });
  if (!top.length) readout.append(say.nothing);
  reveal(side, index);
  if (!flowing) reveal(far, order[0][1]);
  if (!fromMap) revealInMap(side, index);
  repaint();
  tell();
}
function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; drawThreads(); drawMap(); });
}
function fit(canvas, width, height) {  // to a size in CSS pixels, at the resolution of the screen
  const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function drawThreads() {
  const stage = at("stage").getBoundingClientRect(), pen = fit(at("threads"), stage.width, stage.height);
  const corner = flowing ? at("scroller").getBoundingClientRect() : stage, { side, index } = active;
  const place = name => {
    const box = flowing ? corner : at(name).getBoundingClientRect(), out = name === "source";
    return sides[name].buttons.map(button => {
      const rect = button.getBoundingClientRect();
      return {
        x: (flowing ? (out ? rect.right + 4 : rect.left - 4) : rect.left + rect.width / 2) - stage.left,
        y: (flowing ? rect.top + rect.height / 2 : (out ? rect.bottom + 4 : rect.top - 4)) - stage.top,
        seen: rect.bottom > box.top && rect.top < box.bottom,
      };
    });
  };
  const ends = { source: place("source"), target: place("target") }, mark = css("--mark"), accent = css("--accent");
  const line = (i, j, color, share, faintest, aside = 0) => {
    const from = ends.source[j], to = ends.target[i];
    if (flowing ? !from.seen && !to.seen : !from.seen || !to.seen) return;
    const a = { x: from.x + aside, y: from.y }, b = { x: to.x + aside, y: to.y };
    const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2;
    pen.strokeStyle = color;
    pen.lineWidth = 1 + 4 * share;
    pen.globalAlpha = faintest + (0.85 - faintest) * share;
    pen.beginPath();
    pen.moveTo(a.x, a.y);
    if (flowing) pen.bezierCurveTo(x, a.y, x, b.y, b.x, b.y);
    else pen.bezierCurveTo(a.x, y, b.x, y, b.x, b.y);
    pen.stroke();
  };
  pen.lineCap = "round";
  if (flowing) {
    const until = written(), mine = k => side === "target" ? Math.floor(k / S) === index : k % S === index;
    for (const own of [false, true]) {
      for (const k of flow) {
        const i = Math.floor(k / S);
        if (mine(k) === own && i <= until) line(i, k % S, own ? accent : mark, weights[k] / most, own ? 0.5 : 0.15);
      }
    }
    return;
  }
  const drawn = painted ? series.filter(one => one.on) : [{ weights, color: mark }];
  drawn.forEach(({ weights: own, color }, n) => {
    const seen = seenFrom(side, index, own), greatest = range(seen)[1];
    seen.forEach((weight, k) => {
      if (weight < 0.06 * greatest || weight < Math.min(0.01, 0.3 * most)) return;
      const [i, j] = side === "target" ? [index, k] : [k, index];
      line(i, j, color, weight / greatest, painted ? 0.35 : 0.2, 3 * (n - (drawn.length - 1) / 2));
    });
  });
}

// The heat map: one row for each target token, one column for each source token. Only the visible cells are drawn; the
// labels do not scroll away.
const canvas = at("canvas"), map = at("map");
const FAMILY = "system-ui, 'Noto Sans', 'Noto Sans CJK JP', sans-serif";
let grid = {};
function measure() {
  const pen = canvas.getContext("2d"), room = map.clientWidth;
  const [rows, columns] = [sides.target.tokens, sides.source.tokens].map(tokens => tokens.map(token => cut(token, 16)));
  let font, left, cell, widths;
  for (const size of [12, 10]) {  // 10 pixels if 12 are too many
    pen.font = font = `${size}px ${FAMILY}`;
    left = Math.ceil(Math.max(...rows.map(label => pen.measureText(label).width))) + 14;
    widths = columns.map(label => pen.measureText(label).width);
    // Large cells, or smaller ones if that makes the whole map visible.
    const fitting = Math.floor((0.78 * innerHeight - Math.max(...widths) - 18) / T);
    cell = Math.min(34, Math.floor((room - left - 4) / S), fitting < 18 ? 34 : fitting);
    if (cell >= size + 2) break;
  }
  cell = Math.max(11, cell);  // a larger map scrolls
  // All labels of columns have one orientation. In a horizontal row, special tokens shrink to the width of a cell.
  const upright = widths.every((width, j) => width <= cell - 5 || special("source", j));
  const top = upright ? 26 : Math.ceil(Math.max(10, ...widths)) + 14;
  grid = { font, rows, columns, left, top, cell, upright };
  at("sheet").style.width = `${left + cell * S + 3}px`;
  at("sheet").style.height = `${top + cell * T + 3}px`;
  const width = Math.min(left + cell * S + 3, map.clientWidth), height = Math.min(top + cell * T + 3, map.clientHeight);
  [grid.width, grid.height] = [width, height];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-label", say.sizes());
}
function revealInMap(side, index) {
  const { left, top, cell, width, height } = grid, from = cell * index;
  const [room, name] = side === "target" ? [height - top, "scrollTop"] : [width - left, "scrollLeft"];
  if (from < map[name]) map[name] = from;
  else if (from + cell > map[name] + room) map[name] = from + cell - room;
}
function drawMap() {
  const { font, rows, columns, left, top, cell, upright, width, height } = grid, gap = cell > 18 ? 2 : 1;
  const pen = fit(canvas, width, height), dx = left - map.scrollLeft, dy = top - map.scrollTop;
  pen.font = font;
  pen.textBaseline = "middle";
  const text = css("--text"), quiet = css("--quiet"), accent = css("--accent"), until = written();
  const lit = (side, k) => active.side === side && active.index === k;
  const within = (from, to, start, count) => [
    Math.max(0, Math.floor((from - start) / cell)), Math.min(count, Math.ceil((to - start) / cell)),
  ];
  const [i0, i1] = within(top, height, dy, T), [j0, j1] = within(left, width, dx, S);
  const clipped = (x, y, w, h, paint) => {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, w, h);
    pen.clip();
    paint();
    pen.restore();
  };
  clipped(0, top - 2, left, height, () => {
    pen.textAlign = "right";
    for (let i = i0; i < Math.min(i1, until + 1); i++) {
      pen.fillStyle = lit("target", i) ? accent : text;
      pen.fillText(rows[i], left - 7, dy + cell * (i + 0.5) + 1);
    }
  });
  clipped(left - 2, 0, width, top, () => {
    for (let j = j0; j < j1; j++) {
      pen.save();
      pen.translate(dx + cell * (j + 0.5), top - 7);
      pen.fillStyle = lit("source", j) ? accent : text;
      pen.textAlign = upright ? "center" : "left";
      if (upright) pen.translate(0, -6);
      else pen.rotate(-Math.PI / 2);
      pen.fillText(columns[j], 0, 0, upright ? cell - 4 : undefined);
      pen.restore();
    }
  });
  clipped(left - 2, top - 2, width, height, () => {
    for (let i = i0; i < Math.min(i1, until + 1); i++) {
      for (let j = j0; j < j1; j++) {
        pen.fillStyle = colors[shade((weights[i * S + j] - least) / (most - least))];
        pen.fillRect(dx + cell * j, dy + cell * i, cell - gap, cell - gap);
      }
    }
    pen.strokeStyle = quiet;
    pen.globalAlpha = 0.35;
    pen.lineWidth = 1;
    pen.strokeRect(dx - 1.5, dy - 1.5, cell * S + 2, cell * T + 2);
    pen.globalAlpha = 1;
    pen.strokeStyle = accent;
    pen.lineWidth = 2;
    if (active.side === "target") pen.strokeRect(dx - 1, dy + cell * active.index - 1, cell * S + 1, cell + 1);
    else pen.strokeRect(dx + cell * active.index - 1, dy - 1, cell + 1, cell * T + 1);
  });
}
function over(event) {
  const box = canvas.getBoundingClientRect(), { left, top, cell } = grid;
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const j = x < left ? -1 : Math.floor((x - left + map.scrollLeft) / cell);
  const i = y < top ? -1 : Math.floor((y - top + map.scrollTop) / cell);
  if (i >= T || j >= S || (i < 0 && j < 0)) return null;
  if (i >= 0 && j >= 0) {
    const weight = weights[i * S + j];
    const pair = `${cut(sides.target.tokens[i], 80)} ← ${cut(sides.source.tokens[j], 80)}`;
    canvas.title = `${pair}  ${percent(weight)}${bounds(weight)}`;
  }
  return i >= 0 ? ["target", i] : ["source", j];
}
canvas.addEventListener("pointermove", event => {
  const place = over(event);
  if (place && !pinned && !timer && (place[0] !== active.side || place[1] !== active.index)) show(...place, true);
});
canvas.addEventListener("click", event => {
  const place = over(event);
  stop();
  if (place) { pinned = false; show(...place, true); }
});
map.addEventListener("scroll", repaint);
at("scroller").addEventListener("scroll", repaint);

// Save the heat map of all words, as it is colored now, or its weights.
function picture() {  // the size of the picture, and rectangles and texts in the order of painting
  const pen = canvas.getContext("2d"), cell = Math.max(S, T) > 80 ? 14 : 26, shapes = [];
  pen.font = `12px ${FAMILY}`;
  const [rows, columns] = [sides.target.tokens, sides.source.tokens].map(tokens => tokens.map(token => cut(token, 24)));
  const longest = all => Math.ceil(Math.max(...all.map(one => pen.measureText(one).width)));
  const left = longest(rows) + 20, above = longest(columns) + 20;
  const top = above + 24, color = css("--text");
  const width = Math.max(left + cell * S, longest([document.title]) + 12) + 12, height = top + cell * T + 40;
  const box = (x, y, w, h, fill) => shapes.push({ x, y, w, h, fill });
  const text = (x, y, said, anchor, turned = false) => shapes.push({ x, y, said, anchor, turned, fill: color });
  box(0, 0, width, height, css("--panel"));
  text(12, 16, document.title, "start");
  rows.forEach((said, i) => text(left - 8, top + cell * (i + 0.5), said, "end"));
  columns.forEach((said, j) => text(left + cell * (j + 0.5), top - 8, said, "start", true));
  weights.forEach((weight, k) => {
    const fill = colors[shade((weight - least) / (most - least))];
    box(left + cell * (k % S), top + cell * Math.floor(k / S), cell - 1, cell - 1, fill);
  });
  const scale = top + cell * T + 14;
  for (let k = 0; k < 64; k++) box(left + 2 * k, scale, 2, 10, colors[4 * k]);
  text(left - 8, scale + 5, at("least").textContent, "end");
  text(left + 136, scale + 5, at("most").textContent, "start");
  return { width, height, shapes };
}
const escaped = text => text.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
function svg() {
  const { width, height, shapes } = picture();
  const parts = shapes.map(({ x, y, w, h, said, anchor, turned, fill }) => said === undefined
    ? `<rect x="${x}" y="${y}" width="${w}" height="${h}" fill="${fill}"/>`
    : `<text transform="translate(${x} ${y})${turned ? " rotate(-90)" : ""}" text-anchor="${anchor}" `
      + `dominant-baseline="central" fill="${fill}">${escaped(said)}</text>`);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-size="12" `
    + `font-family="${escaped(FAMILY)}">${parts.join("")}</svg>`;
}
async function png() {
  const { width, height, shapes } = picture(), ratio = Math.min(2, 16000 / Math.max(width, height));
  const copy = new OffscreenCanvas(Math.ceil(width * ratio), Math.ceil(height * ratio)), pen = copy.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = `12px ${FAMILY}`;
  pen.textBaseline = "middle";
  for (const { x, y, w, h, said, anchor, turned, fill } of shapes) {
    pen.fillStyle = fill;
    if (said === undefined) { pen.fillRect(x, y, w, h); continue; }
    pen.save();
    pen.translate(x, y);
    if (turned) pen.rotate(-Math.PI / 2);
    pen.textAlign = anchor;
    pen.fillText(said, 0, 0);
    pen.restore();
  }
  return copy.convertToBlob();
}
function csv() {  // a row for each target word: its weights and, if they are known, its probability and entropy
  const quoted = text => `"${text.replace(/"/g, '""')}"`;
  const known = record.probabilities ? ["probability", "entropy"] : [];
  const rows = [["", ...sides.source.tokens, ...known].map(quoted)];
  sides.target.tokens.forEach((token, i) => {
    const values = [...weights.subarray(i * S, (i + 1) * S), ...(known.length ? chances(i) : [])];
    rows.push([quoted(token), ...values.map(value => Number(value.toPrecision(4)))]);
  });
  return rows.map(row => `${row.join(",")}\r\n`).join("");
}
const TYPES = { svg: "image/svg+xml", png: "image/png", csv: "text/csv" };
for (const [kind, make] of Object.entries({ svg, png, csv })) at(kind).addEventListener("click", async () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await make()], { type: TYPES[kind] }));
  const parts = [layer < 0 ? "" : `-L${layer + 1}`, head < 0 ? "" : `-H${head + 1}`];
  link.download = `attention${parts.join("")}.${kind}`;
  link.click();
  URL.revokeObjectURL(link.href);
});

// A map of each head, and of the means.
const thumbs = [];
const called = (l, h) => `${say.oneLayer(l)}, ${say.oneHead(h)}`;
function buildThumbs() {
  at("all").hidden = L * H === 1;
  const indices = size => [...Array(size).keys(), ...(size > 1 ? [-1] : [])], ls = indices(L), hs = indices(H);
  const box = at("thumbs");
  const name = text => { const made = document.createElement("span"); made.textContent = text; box.append(made); };
  // The fewer heads, the larger their maps.
  const widest = Math.min(9, Math.max(4.5, 54 / hs.length));
  box.style.gridTemplateColumns = `auto repeat(${hs.length}, minmax(1.1rem, ${widest}rem))`;
  name("");
  hs.forEach(h => name(h < 0 ? say.mean : `H${h + 1}`));
  for (const l of ls) {
    name(l < 0 ? say.mean : `L${l + 1}`);
    for (const h of hs) {
      const button = document.createElement("button"), map = document.createElement("canvas");
      button.type = "button";
      button.title = called(l, h);
      button.setAttribute("aria-label", called(l, h));
      button.append(map);
      box.append(button);
      // A single layer or head is chosen as the mean over one.
      const chosen = [L === 1 ? -1 : l, H === 1 ? -1 : h];
      button.addEventListener("click", () => { choose(...chosen); show(active.side, active.index); });
      thumbs.push({ button, map, l: chosen[0], h: chosen[1] });
    }
  }
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -hs.length, ArrowDown: hs.length };
  box.addEventListener("keydown", event => {
    const now = thumbs.findIndex(thumb => thumb.button === event.target), move = moves[event.key];
    if (!move || now < 0) return;
    event.preventDefault();
    const next = now + move, sameRow = Math.floor(next / hs.length) === Math.floor(now / hs.length);
    if (!thumbs[next] || (Math.abs(move) === 1 && hs.length > 1 && !sameRow)) return;
    thumbs[next].button.focus();
    thumbs[next].button.click();
  });
}
let painting = 0;
async function paintThumbs() {
  const mine = ++painting;
  let since = performance.now();
  const width = Math.min(S, 96), height = Math.min(T, 96);
  const column = Uint8Array.from({ length: S }, (_, j) => Math.floor(j * width / S));
  const dots = new Float32Array(width * height), image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (const { map, l, h } of thumbs) {
    if (performance.now() - since > 15) {  // keep the page responsive
      await new Promise(done => setTimeout(done));
      if (mine !== painting) return;
      since = performance.now();
    }
    // The largest of the weights that share a dot, so that thin lines remain visible.
    const all = matrix(l, h);
    dots.fill(-Infinity);
    for (let i = 0, k = 0; i < T; i++) {
      const row = Math.floor(i * height / T) * width;
      for (let j = 0; j < S; j++, k++) {
        const dot = row + column[j];
        if (all[k] > dots[dot]) dots[dot] = all[k];
      }
    }
    const [low, high] = range(dots);
    dots.forEach((value, dot) => { pixels[dot] = shades[shade((value - low) / (high - low))]; });
    [map.width, map.height] = [width, height];
    map.style.aspectRatio = Math.min(2, Math.max(0.5, S / T));
    map.getContext("2d").putImageData(image, 0, 0);
  }
}

function stop() {
  if (!timer) return;
  clearInterval(timer);
  timer = null;
  at("play").textContent = say.play;
  repaint();
}
at("play").addEventListener("click", () => {
  if (timer) { stop(); return; }
  pinned = false;
  at("play").textContent = say.stop;
  const { side, index } = active;
  timer = setInterval(() => { if (active.index === T - 1) stop(); else show("target", active.index + 1); }, 650);
  show("target", side === "target" && index < T - 1 ? index : 0);
});

function chooser(id, size, change) {
  at(`${id}s`).hidden = size < 2;
  at(id).append(new Option(say.meanOf(size), -1), ...Array.from({ length: size }, (_, k) => new Option(k + 1, k)));
  at(id).addEventListener("change", () => {
    choose(...change(Number(at(id).value)));
    show(active.side, active.index);
  });
}
function look(flows) {
  flowing = flows;
  at("stage").classList.toggle("flow", flowing);
  at("lines").setAttribute("aria-pressed", !flowing);
  at("flow").setAttribute("aria-pressed", flowing);
  at("limit").hidden = !flowing;
  at("paints").hidden = flowing || L * H === 1;
  at("legend").hidden = flowing || !painted;
  for (const side of ["source", "target"]) at(side).dir = sides[side].rtl && !flowing ? "rtl" : "ltr";
  at("scroller").scrollTop = 0;
  chooseThreads();
  show(active.side, active.index);
}
at("lines").addEventListener("click", () => look(false));
at("flow").addEventListener("click", () => look(true));
at("threshold").addEventListener("input", () => { threshold = at("threshold").value; chooseThreads(); repaint(); });
function repaintLines() {
  painted = at("paint").checked;
  chooseSeries();
  redraw();
}
function rearrange() {
  stop();
  pinned = false;
  // The active word is the one that contains the first token of the word that was active.
  const { side, index } = active, place = sides[side].members[index][0];
  [merging, hiding] = [at("merge").checked, at("hide").checked];
  arrange();
  build("source");
  build("target");
  active = { side, index: Math.max(0, sides[side].members.findIndex(members => members.includes(place))) };
  at("how").textContent = [merging ? say.merged : "", hiding ? say.hidden : ""].join("");
  at("how").hidden = !merging && !hiding;
  choose(layer, head);
  redraw();
  paintThumbs();
}
at("paint").addEventListener("change", repaintLines);
at("merge").addEventListener("change", rearrange);
at("hide").addEventListener("change", rearrange);

// In a comparison of pages, each tells the others what its reader does; the source is that of all pages.
let following = false;
const checked = () => ["merge", "hide", "paint"].map(id => at(id).checked);
function tell() {
  if (parent === window || following) return;
  const token = active.side === "source" ? sides.source.members[active.index][0] : null;
  parent.postMessage({ attention: { token, layer, head, flowing, checks: checked() } }, "*");
}
addEventListener("message", ({ data }) => {
  if (data?.theme === "dark" || data?.theme === "light") { themed(data.theme); recolor(); }
  const told = data?.attention;
  if (!told) return;
  following = true;
  if (flowing !== told.flowing) look(told.flowing);
  if (`${checked()}` !== `${told.checks}`) {
    [at("merge").checked, at("hide").checked, at("paint").checked] = told.checks;
    repaintLines();
    rearrange();
  }
  if (layer !== told.layer || head !== told.head) choose(told.layer, told.head);
  const index = sides.source.members.findIndex(members => members.includes(told.token));
  show(...(index < 0 ? [active.side, active.index] : ["source", index]));
  following = false;
});
function redraw() { measure(); show(active.side, active.index); }
function recolor() { mix(); paintThumbs(); show(active.side, active.index); }

async function start() {
  if (record.parts) await Promise.all(Object.values(record.parts).map(inflate));
  at("hint").textContent = [say.hint, record.probabilities ? say.chance : ""].join(" ").trim();
  at("merges").hidden = !record.words;
  at("hides").hidden = !Object.values(sides).some(side => side.special.size && side.special.size < side.every.length);
  at("note").hidden = !record.parts;
  at("stage").classList.toggle("long", S > 48 || T > 48);
  chooser("layer", L, value => [value, head]);
  chooser("head", H, value => [layer, value]);
  buildThumbs();
  for (const side of ["source", "target"]) { build(side); listen(side); }
  active = { side: "target", index: record.row };
  choose(-1, -1);
  mix();
  measure();
  look(false);
  paintThumbs();
  addEventListener("resize", redraw);
  darkness.addEventListener("change", () => { themed(darkness.matches ? "dark" : "light"); recolor(); });
  document.fonts.ready.then(redraw);
  document.documentElement.dataset.ready = "";
}
if (typeof DecompressionStream === "undefined") {
  at("hint").textContent = say.old;
} else start();

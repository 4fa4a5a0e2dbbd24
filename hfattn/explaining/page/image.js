// The script of the page of an image: words or heads, and the heat map of the chosen one over the image. Each view
// (attention, rollout, a method of saliency) has maps of N words in L layers of H heads, as bytes.
const [R, C] = record.grid, N = record.words.length;

const WORDS = {
  en: {
    layer: "Layer", head: "Head", opacity: "Heat map", smooth: "Smooth", save: "Save as PNG",
    words: "Words", maps: "Heat maps", all: "Layers and heads",
    ranges: "The colors of each map span its own range. L1 and H1 are layer=0 and head=0 of the record.",
    hintWords: "Point at a word, or move to it with the arrow keys, to lay its heat map over the image. A click holds it.",
    hintHeads: "Point at a head, or move to it with the arrow keys, to lay its heat map over the image. A click holds it.",
    hint: "The heat map lies over the image.",
    patch: "Point at a patch of the image to see its weight.",
    disagree: "These methods can disagree: attention and rollout show where the model read, gradients and occlusion what "
      + "its answer depends on.",
    attention: "Attention", rollout: "Attention rollout", gradient: "Gradient × input",
    integrated: "Integrated gradients", occlusion: "Occlusion",
    mean: "mean", meanOf: size => `mean of ${size}`,
    oneLayer: l => l < 0 ? "mean of the layers" : `layer ${l + 1}`,
    oneHead: h => h < 0 ? "mean of the heads" : `head ${h + 1}`,
    place: (row, column) => `row ${row + 1}, column ${column + 1}`,
    most: "most at", chance: share => ` (probability ${share})`, legend: "weight from 0 to the largest",
    signed: "against the answer (orange) to for it (blue)",
    old: "This page needs a browser from 2023 or later.",
  },
  es: {
    layer: "Capa", head: "Cabeza", opacity: "Mapa de calor", smooth: "Suave", save: "Guardar como PNG",
    words: "Palabras", maps: "Mapas de calor", all: "Capas y cabezas",
    ranges: "Los colores de cada mapa abarcan su propio intervalo. L1 y H1 son layer=0 y head=0 del registro.",
    hintWords: "Señala una palabra, o llega a ella con las flechas, para ver su mapa de calor sobre la imagen. Un clic la "
      + "mantiene.",
    hintHeads: "Señala una cabeza, o llega a ella con las flechas, para ver su mapa de calor sobre la imagen. Un clic la "
      + "mantiene.",
    hint: "El mapa de calor está sobre la imagen.",
    patch: "Señala un recuadro de la imagen para ver su peso.",
    disagree: "Estos métodos pueden discrepar: la atención y su producto muestran dónde leyó el modelo; los gradientes y "
      + "la oclusión, de qué depende su respuesta.",
    attention: "Atención", rollout: "Atención a través de las capas", gradient: "Gradiente × entrada",
    integrated: "Gradientes integrados", occlusion: "Oclusión",
    mean: "media", meanOf: size => `media de ${size}`,
    oneLayer: l => l < 0 ? "media de las capas" : `capa ${l + 1}`,
    oneHead: h => h < 0 ? "media de las cabezas" : `cabeza ${h + 1}`,
    place: (row, column) => `fila ${row + 1}, columna ${column + 1}`,
    most: "sobre todo en", chance: share => ` (probabilidad ${share})`, legend: "peso de 0 al mayor",
    signed: "de en contra de la respuesta (naranja) a a favor (azul)",
    old: "Esta página necesita un navegador de 2023 o posterior.",
  },
};
const say = WORDS[language];
speak(say);

const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u202f%`;
const [L, H] = record.views[0].shape;
let word = 0, layer = -1, head = -1, pinned = false, pointed = null;

// Weights: byte k of a map stands for k / 255 of its largest weight; of scores, (k - 128) / 127 of the largest size.
for (const view of record.views) view.bytes = Uint8Array.from(atob(view.data), c => c.charCodeAt(0));
function one(view, l, h, n) {
  const index = (l * view.shape[1] + h) * N + n, bytes = view.bytes.subarray(index * R * C, (index + 1) * R * C);
  const [zero, unit] = view.signed ? [128, 127] : [0, 255];
  return Float32Array.from(bytes, byte => (byte - zero) / unit * view.largest[index]);
}
function values(view, l = layer, h = head, n = word) {  // R * C weights; -1 is the mean over all layers or heads
  const pick = (chosen, size) => size === 1 ? [0] : chosen < 0 ? [...Array(size).keys()] : [chosen];
  const ls = pick(l, view.shape[0]), hs = pick(h, view.shape[1]), sum = new Float32Array(R * C);
  for (const i of ls) for (const j of hs) one(view, i, j, n).forEach((value, k) => { sum[k] += value; });
  return sum.map(value => value / ls.length / hs.length);
}
const largest = map => map.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);

// The colors of shares of the largest weight, from 0, or of scores from -1, to 1: red, green, blue and opacity.
const STEPS = 512;
const ramps = Object.fromEntries(Object.entries(record.colors).map(([name, colors]) => [name, Array.from(
  { length: STEPS + 1 }, (_, k) => {
    const place = (colors.length - 1) * k / STEPS, low = Math.min(colors.length - 2, Math.floor(place));
    const mixed = colors[low].map((value, i) => value + (colors[low + 1][i] - value) * (place - low));
    return [...mixed.slice(0, 3), 255 * mixed[3]].map(Math.round);
  },
)]));
const packed = Object.fromEntries(Object.entries(ramps).map(([name, colors]) => [
  name, new Uint32Array(new Uint8Array(colors.flat()).buffer),
]));
const step = (share, signed) => Math.round(STEPS * Math.min(1, Math.max(0, signed ? (share + 1) / 2 : share)));
const color = (share, signed) => ramps[signed ? "scores" : "weights"][step(share, signed)];
function spread(length, size) {  // for each pixel of a side: the two patches around it, and the share of the second
  return Array.from({ length }, (_, pixel) => {
    const place = Math.min(size - 1, Math.max(0, (pixel + 0.5) * size / length - 0.5)), low = Math.floor(place);
    return [low, Math.min(size - 1, low + 1), place - low];
  });
}
function heat(map, signed, width, height, smooth) {  // a canvas with the colors of a map, bilinearly if it is smooth
  const most = largest(map), canvas = new OffscreenCanvas(width, height), image = new ImageData(width, height);
  const across = spread(width, C), down = spread(height, R);
  const pixels = new Uint32Array(image.data.buffer), dyes = signed ? packed.scores : packed.weights;
  let k = 0;
  for (const [top, below, v] of down) {
    for (const [left, right, h] of across) {
      const [a, b, x, y] = smooth ? [top, below, h, v] : [v < 0.5 ? top : below, 0, 0, 0];
      const [c, d] = smooth ? [left, right] : [h < 0.5 ? left : right, 0];
      const upper = map[a * C + c] * (1 - x) + map[a * C + d] * x, lower = map[b * C + c] * (1 - x) + map[b * C + d] * x;
      pixels[k++] = dyes[step((upper * (1 - y) + lower * y) / most, signed)];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
function paint(canvas, view, map) {
  const pen = canvas.getContext("2d"), { width, height } = canvas;
  pen.clearRect(0, 0, width, height);
  pen.imageSmoothingEnabled = record.size[0] >= 128;
  pen.drawImage(picture, 0, 0, width, height);
  pen.globalAlpha = at("opacity").value / 100;
  pen.drawImage(heat(map, view.signed, width, height, at("smooth").checked), 0, 0);
  pen.globalAlpha = 1;
  if (pointed !== null) {
    pen.strokeStyle = css("--accent");
    pen.lineWidth = Math.max(2, width / 160);
    pen.strokeRect(pointed % C * width / C, Math.floor(pointed / C) * height / R, width / C, height / R);
  }
}

const title = view => say[view.name] ?? view.name;
const places = record.views.map(view => {
  const figure = document.createElement("figure"), name = document.createElement("figcaption");
  const canvas = document.createElement("canvas"), ramp = document.createElement("div");
  const factor = Math.max(1, Math.ceil(448 / Math.max(...record.size)));
  [canvas.width, canvas.height] = record.size.map(side => side * factor);
  canvas.setAttribute("role", "img");
  name.append(element("b", title(view)), view.target ? ` → ${view.target}` : "");
  ramp.className = "ramp";
  ramp.setAttribute("role", "img");
  ramp.setAttribute("aria-label", view.signed ? say.signed : say.legend);
  const stops = Array.from({ length: 9 }, (_, k) => color(view.signed ? k / 4 - 1 : k / 8, view.signed));
  ramp.style.background = `linear-gradient(to right, ${stops.map(([r, g, b, a]) => `rgb(${r} ${g} ${b} / ${a / 255})`)})`;
  figure.append(name, canvas, ramp);
  at("views").append(figure);
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * C), row = Math.floor((event.clientY - box.top) / box.height * R);
    const patch = row >= 0 && row < R && column >= 0 && column < C ? row * C + column : null;
    if (patch !== pointed) { pointed = patch; draw(); }
  });
  canvas.addEventListener("pointerleave", () => { pointed = null; draw(); });
  return { view, canvas };
});

function shares(view, map) {  // what a reader is told of a map: the strongest patches, or the one pointed at
  const format = value => view.signed ? `${value < 0 ? "−" : "+"}${Math.abs(value).toPrecision(2)}` : percent(value);
  const order = [...map.keys()].sort((a, b) => Math.abs(map[b]) - Math.abs(map[a]));
  const told = pointed === null ? order.slice(0, 3) : [pointed];
  return told.map(k => `${say.place(Math.floor(k / C), k % C)}: ${format(map[k])}`).join(" · ");
}
function draw() {
  const readout = at("readout");
  readout.replaceChildren();
  for (const { view, canvas } of places) {
    const map = values(view), told = shares(view, map);
    paint(canvas, view, map);
    const many = view.shape[0] * view.shape[1] > 1, part = many ? ` (${say.oneLayer(layer)}, ${say.oneHead(head)})` : "";
    const name = `${title(view)}${N > 1 ? `, ${shown(record.words[word])}` : ""}${part}`;
    const text = `${name}: ${pointed === null ? `${say.most} ` : ""}${told}`;
    canvas.setAttribute("aria-label", text);
    const line = document.createElement("div");
    line.textContent = text;
    readout.append(line);
  }
}

function show(n) {
  word = n;
  words.forEach((button, k) => {
    button.classList.toggle("active", k === n);
    button.tabIndex = k === n ? 0 : -1;
    button.setAttribute("aria-pressed", k === n);
  });
  draw();
  paintThumbs();
}
function choose(l, h) {
  [layer, head] = [l, h];
  [at("layer").value, at("head").value] = [layer, head];
  for (const thumb of thumbs) {
    const chosen = thumb.l === layer && thumb.h === head;
    thumb.button.setAttribute("aria-pressed", chosen);
    thumb.button.tabIndex = chosen ? 0 : -1;
  }
  draw();
}
// Pointing shows; a click holds what is shown, until the same or another one is clicked.
function follow(button, chosen, now) {
  button.addEventListener("pointerenter", event => { if (!pinned && event.pointerType === "mouse") chosen(); });
  button.addEventListener("focus", () => { if (button.matches(":focus-visible")) chosen(); });
  button.addEventListener("click", () => { pinned = !(pinned && now()); chosen(); });
}
const words = N < 2 ? [] : record.words.map((token, n) => {
  const button = document.createElement("button"), item = document.createElement("li");
  button.type = "button";
  button.dir = "auto";
  button.textContent = shown(token);
  button.classList.toggle("special", record.special.includes(n));
  follow(button, () => show(n), () => word === n);
  item.append(button);
  if (record.probabilities) {
    const strip = element("small", percent(record.probabilities[n]));
    strip.style.setProperty("--share", record.probabilities[n]);
    strip.title = say.chance(percent(record.probabilities[n])).trim();
    item.append(strip);
  }
  at("words").append(item);
  return button;
});
at("words").addEventListener("keydown", event => {
  const moves = { ArrowRight: word + 1, ArrowLeft: word - 1, Home: 0, End: N - 1 };
  if (event.key === "Escape") pinned = false;
  if (!(event.key in moves)) return;
  event.preventDefault();
  words[Math.min(N - 1, Math.max(0, moves[event.key]))].focus();
});

const thumbs = [];
function buildThumbs() {
  const indices = size => [...Array(size).keys(), ...(size > 1 ? [-1] : [])], ls = indices(L), hs = indices(H);
  const box = at("thumbs"), name = text => box.append(element("span", text));
  at("all").hidden = false;
  at("beside").classList.add("two");
  box.style.gridTemplateColumns = `auto repeat(${hs.length}, minmax(1.1rem, ${Math.min(5, Math.max(2, 26 / hs.length))}rem))`;
  name("");
  hs.forEach(h => name(h < 0 ? say.mean : `H${h + 1}`));
  for (const l of ls) {
    name(l < 0 ? say.mean : `L${l + 1}`);
    for (const h of hs) {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      button.type = "button";
      button.setAttribute("aria-label", `${say.oneLayer(l)}, ${say.oneHead(h)}`);
      [canvas.width, canvas.height] = [C, R];
      button.append(canvas);
      box.append(button);
      const chosen = { l: L === 1 ? -1 : l, h: H === 1 ? -1 : h };
      follow(button, () => choose(chosen.l, chosen.h), () => chosen.l === layer && chosen.h === head);
      thumbs.push({ button, canvas, ...chosen });
    }
  }
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -hs.length, ArrowDown: hs.length, Home: -Infinity, End: Infinity };
  box.addEventListener("keydown", event => {
    const now = thumbs.findIndex(thumb => thumb.button === event.target), move = moves[event.key];
    if (event.key === "Escape") pinned = false;
    if (!move || now < 0) return;
    event.preventDefault();
    const next = Math.min(thumbs.length - 1, Math.max(0, now + move));
    thumbs[next].button.focus();
  });
}
let painting = 0;
async function paintThumbs() {
  const mine = ++painting;
  let since = performance.now();
  for (const { canvas, l, h } of thumbs) {
    if (performance.now() - since > 15) {  // keep the page responsive
      await new Promise(done => setTimeout(done));
      if (mine !== painting) return;
      since = performance.now();
    }
    const pen = canvas.getContext("2d"), [view] = record.views;
    pen.clearRect(0, 0, C, R);
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, C, R);
    pen.drawImage(heat(values(view, l, h), view.signed, C, R, true), 0, 0);
  }
}
function chooser(id, size, change) {
  at(`${id}s`).hidden = size < 2;
  at(id).append(new Option(say.meanOf(size), -1), ...Array.from({ length: size }, (_, k) => new Option(k + 1, k)));
  at(id).addEventListener("change", () => choose(...change(Number(at(id).value))));
}

const picture = new Image();
async function start() {
  picture.src = record.image;
  await picture.decode();
  at("spoken").hidden = N < 2;
  at("disagree").hidden = record.views.length < 2;
  at("hint").textContent = `${N > 1 ? say.hintWords : L * H > 1 ? say.hintHeads : say.hint} ${say.patch}`;
  chooser("layer", L, value => [value, head]);
  chooser("head", H, value => [layer, value]);
  if (L * H > 1) buildThumbs();
  for (const id of ["opacity", "smooth"]) at(id).addEventListener("input", draw);
  at("save").addEventListener("click", async () => {
    const link = document.createElement("a");
    const wide = places.reduce((sum, { canvas }) => sum + canvas.width, 0), sheet = new OffscreenCanvas(wide, places[0].canvas.height);
    places.forEach(({ canvas }, k) => sheet.getContext("2d").drawImage(canvas, k * canvas.width, 0));
    link.href = URL.createObjectURL(await sheet.convertToBlob());
    link.download = "attention.png";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  addEventListener("message", ({ data }) => {
    if (data?.theme === "dark" || data?.theme === "light") { themed(data.theme); draw(); }
  });
  darkness.addEventListener("change", () => { themed(darkness.matches ? "dark" : "light"); draw(); });
  // A vision Transformer starts with its last layer, which the answer is computed from.
  choose(N > 1 || L === 1 ? -1 : L - 1, -1);
  show(record.row);
  root.dataset.ready = "";
}
if (typeof OffscreenCanvas === "undefined") at("hint").textContent = say.old;
else start();

"""A record of attention as a page to read with a mouse, a finger or the arrow keys.

The page is one file that loads nothing. It ships with a model's pipeline, so that a record can be shown where only the
model's repository is.

Shapes: L layers, H heads, T target (query) steps, S source (key) steps.
"""

import base64
import bisect
import html
import json
import re
import zlib
from typing import Any

import torch

from .alignment import AttentionRecord

_EXACT = 50_000  # weights; up to these, each is written with four digits
_ROOM = 3_550_000  # bytes for more of them than that; base64 makes a third more, and the page has to stay below 5 MB
_SHARES = {"all": 0.08, "heads": 0.17, "layers": 0.17, "weights": 1.0}  # of the room that is left when it is their turn
# Numbers of steps that a weight is rounded to: as many as fit.
_STEPS = (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 64, 128, 256)
_SAMPLE = 1_000_000  # weights to judge by how many steps will fit

# What would end the script element that holds the data (< > &), or a line of it in an old browser, as JSON may have it.
_ESCAPES = {60: "\\u003c", 62: "\\u003e", 38: "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def render_html(record: AttentionRecord, title: str | None = None) -> str:
    """One self-contained page: two lines of text that light each other up, their heat map, and a map of each head.

    It loads nothing, runs from a file, and speaks English or Spanish, as the browser does. A reader chooses layer and
    head where there are several, and sees their mean at first; L1 and H1 are ``layer=0`` and ``head=0`` of the record.

    Up to 50,000 weights are written with four digits. More are rounded, each to the mean weight of its step. The steps
    are equal ones of the square root of the weight, so that small weights still differ, and zero has one of its own.
    There are as many (2 to 256) as keep the page of 512 tokens, 12 layers and 12 heads below 5 MB, and more of them for
    the means over heads and layers than for a single head. Such a page says how many there are, and between which
    bounds a weight lies.

    Args:
        record: at least one token on either side.
        title: heading of the page; default "Alignment", or "Self-attention".

    Raises:
        ValueError: the record has no token on one side, or a weight that is not a number.
    """
    check_drawable(record)
    if title is None:
        title = "Alignment" if record.kind == "cross" else "Self-attention"
    layers, heads = record.weights.shape[:2]
    data: dict[str, Any] = {
        "kind": record.kind,
        "tokens": record.tokens,
        "target_tokens": record.target_tokens,
        "shape": [layers, heads],
    }
    if record.weights.numel() <= _EXACT:
        data["weights"] = [[[_digits(row) for row in m] for m in layer] for layer in record.weights.tolist()]
    else:
        data["parts"] = _parts(record.weights)
    text = json.dumps(data, separators=(",", ":")).translate(_ESCAPES)
    pieces = {"title": html.escape(title), "record": text}
    # One pass over the template: what a token spells is never taken for a place to fill.
    return re.sub("@(title|record)@", lambda match: pieces[match[1]], _TEMPLATE)


def check_drawable(record: AttentionRecord) -> None:
    """Refuse what no picture can show.

    Raises:
        ValueError: the record has no token on one side, or a weight that is not a number.
    """
    if not record.tokens or not record.target_tokens:
        raise ValueError("This record has no tokens on one side, so there is nothing to show; choose a longer text.")
    if not record.weights.isfinite().all():
        raise ValueError("This record holds weights that are no finite numbers; look for their cause in the model.")


def _digits(weights: list[float]) -> list[float]:
    return [float(f"{weight:.4g}") for weight in weights]


def _parts(weights: torch.Tensor) -> dict[str, dict[str, Any]]:
    """Weights (L, H, T, S) and their means, packed: the means first, because what they leave is for the weights."""
    layers, heads = weights.shape[:2]
    matrices = {}
    if layers > 1 and heads > 1:
        matrices["all"] = weights.mean((0, 1), dtype=torch.float32)[None]
    if heads > 1:
        matrices["heads"] = weights.mean(1, dtype=torch.float32)
    if layers > 1:
        matrices["layers"] = weights.mean(0, dtype=torch.float32)
    matrices["weights"] = weights.flatten(0, 1)
    parts, room = {}, _ROOM
    for name, part in matrices.items():
        parts[name], used = _pack(part, int(room * _SHARES[name]))
        room -= used
    return parts


def _pack(matrices: torch.Tensor, room: int) -> tuple[dict[str, Any], int]:
    """Matrices (M, T, S) in as many steps as the room has, in bytes; and how many bytes they take."""
    # The scale of all matrices, a chunk of them at a time: copies of millions of weights would take most of the time.
    chunks = matrices.split(max(1, _SAMPLE // matrices[0].numel()))
    bounds = [_roots(chunk) for chunk in chunks]
    has_zero = any(zero for _, _, zero in bounds)
    low, high = min(bound[0] for bound in bounds), max(bound[1] for bound in bounds)

    def levels(chunk: torch.Tensor, steps: int) -> torch.Tensor:
        """(M, T * S): which step each weight is on; with zeros among them, zero is the first."""
        wide = steps - has_zero
        scale = wide / (high - low) if high > low else 0.0
        flat = chunk.flatten(1).float()
        step = _root(flat).sub_(low).mul_(scale).clamp_(0, wide - 1).to(torch.uint8)
        return torch.where(flat == 0, 0, step + 1) if has_zero else step

    def compress(chunks: Any, steps: int) -> tuple[bytes, torch.Tensor]:
        # Runs of equal bytes and their frequencies are what there is to save; to search for more takes a minute.
        writer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
        sums, data = torch.zeros(2, steps, dtype=torch.float64), b""
        for chunk in chunks:
            step = levels(chunk, steps)
            index = step.flatten().int()
            sums[0] += torch.bincount(index, chunk.flatten().double(), steps)
            sums[1] += torch.bincount(index, minlength=steps)
            data += writer.compress(_together(step, steps).numpy().tobytes())
        return data + writer.flush(), sums[0] / sums[1].clamp_(min=1)

    rows = matrices.flatten(0, 1)
    sample = rows[:: max(1, matrices.numel() // _SAMPLE)][None]
    share = sample.numel() / matrices.numel()
    fitting = bisect.bisect_right(_STEPS, room * share, key=lambda steps: len(compress([sample], steps)[0]))
    for steps in reversed(_STEPS[: max(1, fitting)]):
        data, values = compress(chunks, steps)
        if len(data) <= room:
            break
    roots = torch.linspace(low, high, steps - has_zero + 1, dtype=torch.float64)
    part = {
        "steps": steps,
        "per_byte": _per_byte(steps),
        "values": _digits(values.tolist()),
        "edges": _digits((roots * roots.abs()).tolist()),
        "data": base64.b64encode(data).decode(),
    }
    return part, len(data)


def _root(weights: torch.Tensor) -> torch.Tensor:
    """The square root, with the sign of the weight: there are attentions whose weights may be negative."""
    return torch.copysign(weights.abs().sqrt_(), weights)


def _roots(weights: torch.Tensor) -> tuple[float, float, bool]:
    """The least and the greatest root of weights that are not zero, and whether there are such that are."""
    weights = weights.float()
    least, greatest = (_root(bound).item() for bound in weights.aminmax())
    if least > 0 or greatest < 0:
        return least, greatest, False
    some = _root(weights[weights != 0])
    if len(some) == 0:
        return 0.0, 0.0, True
    return some.min().item(), some.max().item(), len(some) < weights.numel()


def _per_byte(steps: int) -> int:
    return max(k for k in range(1, 9) if steps**k <= 256)


def _together(levels: torch.Tensor, steps: int) -> torch.Tensor:
    """Rows of levels, several to a byte, as digits of a number to the base ``steps``; the first is the lowest."""
    per_byte = _per_byte(steps)
    padded = torch.nn.functional.pad(levels, (0, -levels.shape[1] % per_byte))
    whole = padded[:, 0::per_byte].clone()
    for place in range(1, per_byte):
        whole += padded[:, place::per_byte] * steps**place
    return whole


_TEMPLATE = r"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<!-- Nothing from outside: what this page shows is in it. -->
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>@title@</title>
<style>
:root {
  color-scheme: light dark;
  --page: #f6f4ef; --panel: #fffefb; --text: #1d2430; --quiet: #5d6778; --line: #dcd8ce;
  --mark: #1b6ca8; --mark-text: #fff; --word: #000; --accent: #c2410c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101319; --panel: #181c24; --text: #e8eaef; --quiet: #99a2b3; --line: #2d3440;
    --mark: #58b6d8; --mark-text: #000; --word: #fff; --accent: #ffa35c;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body {
  margin: 0; padding: clamp(.75rem, 3vw, 2.5rem); background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK JP", sans-serif;
}
main { max-width: 76rem; margin: 0 auto; }
h1 { margin: 0; font-size: clamp(1.3rem, 3vw, 1.8rem); line-height: 1.25; overflow-wrap: anywhere; }
.hint { margin: .35rem 0 1.25rem; color: var(--quiet); font-size: .92rem; max-width: 46rem; }
.panels { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 1.25rem; align-items: start; }
@media (max-width: 54rem) { .panels { grid-template-columns: minmax(0, 1fr); } }
section {
  min-width: 0; background: var(--panel); border: 1px solid var(--line); border-radius: .9rem;
  padding: clamp(.7rem, 2.5vw, 1.2rem);
}
.panels + section { margin-top: 1.25rem; }
.controls {
  display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: center; margin-bottom: 1.25rem; font-size: .92rem;
}
.controls label { color: var(--quiet); display: inline-flex; align-items: center; gap: .4rem; }
select, .controls button {
  font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: .5rem;
  padding: .3rem .7rem; min-height: 2.3rem;
}
.controls button { cursor: pointer; }
#play { min-width: 6.2rem; }
.views { display: inline-flex; }
.views button { border-radius: 0; }
.views button:first-child { border-radius: .5rem 0 0 .5rem; }
.views button:last-child { border-radius: 0 .5rem .5rem 0; margin-left: -1px; }
.views button[aria-pressed=true] { background: var(--mark); border-color: var(--mark); color: var(--mark-text); }
input[type=range] { width: 8rem; accent-color: var(--mark); }
#count { color: var(--quiet); font-variant-numeric: tabular-nums; }
h2 {
  margin: 0 0 .4rem; font-size: .78rem; font-weight: 600; letter-spacing: .06em; text-transform: uppercase;
  color: var(--quiet);
}
#target + h2 { margin: .5rem 0 0; }
.stage { position: relative; isolation: isolate; }
#threads { position: absolute; inset: 0; width: 100%; height: 100%; pointer-events: none; }
.text { display: flex; flex-wrap: wrap; gap: .22rem; margin: 0; padding: 4px; list-style: none; }
.text li { min-width: 0; max-width: 100%; display: flex; }
.text button {
  --weight: 0; position: relative; z-index: 1; cursor: pointer; font: inherit; font-size: 1.08rem; line-height: 1.3;
  white-space: pre; min-width: 1.7rem; min-height: 2.1rem; padding: .18rem .34rem; color: var(--word);
  border: 1px solid var(--line); border-radius: .4rem; max-width: 100%; overflow: hidden; text-overflow: ellipsis;
  background: color-mix(in oklab, var(--mark) calc(var(--weight) * 100%), var(--panel));
}
.text button.strong { color: var(--mark-text); border-color: transparent; }
.text button.active { outline: 3px solid var(--accent); outline-offset: 1px; z-index: 2; }
.text button.special {
  font: 600 .78rem/1.3 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; border-style: dashed;
}
.text .blank { opacity: .5; }
.between { height: 4.5rem; }
.long .text { max-height: 14.5rem; overflow-y: auto; }
.side { display: flex; flex-direction: column; min-width: 0; }
/* All threads: a word to a line, in two columns. */
.flow .scroller {
  display: grid; grid-template-columns: minmax(0, 1fr) clamp(5rem, 32%, 13rem) minmax(0, 1fr);
  max-height: 75vh; overflow-y: auto;
}
.flow .text { flex-flow: column nowrap; gap: .15rem; max-height: none; overflow: visible; }
.flow .text button { font-size: .95rem; min-height: 1.75rem; padding-block: .08rem; }
.flow .text button.special { font-size: .72rem; }
.flow .between { height: auto; }
.flow #source { align-items: flex-end; }
.flow #source-name { text-align: right; padding-right: 4px; }
.flow #target-name { order: -1; margin: 0 0 .4rem; padding-left: 4px; }
.readout {
  min-height: 3.4em; margin: 1rem 0 0; padding-top: .8rem; border-top: 1px solid var(--line); font-size: .95rem;
  overflow-wrap: anywhere;
}
.readout b { color: var(--accent); unicode-bidi: isolate; }
.readout span { white-space: nowrap; color: var(--quiet); }
.readout strong { color: var(--text); font-weight: 600; unicode-bidi: isolate; }
.map { overflow: auto; max-height: 78vh; }
#canvas { position: sticky; top: 0; left: 0; display: block; cursor: crosshair; }
.scale { display: flex; align-items: center; gap: .6rem; margin-top: .9rem; color: var(--quiet); font-size: .85rem; }
.scale i { flex: 0 1 12rem; height: .7rem; border-radius: .35rem; border: 1px solid var(--line); }
.heads { display: grid; gap: 3px; padding: 0 3px 3px 0; overflow-x: auto; align-items: center; justify-content: start; }
.heads span { color: var(--quiet); font-size: clamp(.56rem, 1.4vw, .78rem); text-align: center; }
.heads button {
  cursor: pointer; padding: 0; border: 1px solid var(--line); border-radius: .2rem; overflow: hidden; display: block;
  background: none; min-width: 0; margin: 3px;
}
.heads button[aria-pressed=true] { outline: 3px solid var(--accent); outline-offset: 1px; }
.heads canvas { display: block; width: 100%; image-rendering: pixelated; }
.note { margin: .7rem 0 0; color: var(--quiet); font-size: .85rem; max-width: 46rem; }
@media (max-width: 40rem) { .heads { gap: 0; } .heads button { margin: 1px; } }
@media print { .controls { display: none; } body { padding: 0; } }
</style>
</head>
<body>
<main>
  <h1 dir="auto">@title@</h1>
  <p class="hint" id="hint"></p>
  <div class="controls">
    <button id="play" type="button"></button>
    <span class="views" role="group" data-label="views">
      <button id="lines" type="button" aria-pressed="true" data-say="lines"></button>
      <button id="flow" type="button" aria-pressed="false" data-say="flow"></button>
    </span>
    <label id="layers" hidden><span data-say="layer"></span> <select id="layer"></select></label>
    <label id="heads" hidden><span data-say="head"></span> <select id="head"></select></label>
    <label id="limit" hidden><span data-say="limit"></span>
      <input id="threshold" type="range" min="0" max="100" step="0.5"> <span id="count"></span></label>
  </div>
  <div class="panels">
    <section data-label="texts">
      <div class="stage" id="stage">
        <canvas id="threads" aria-hidden="true"></canvas>
        <div class="scroller" id="scroller">
          <div class="side">
            <h2 id="source-name"></h2>
            <ol class="text" id="source" aria-labelledby="source-name"></ol>
          </div>
          <div class="between"></div>
          <div class="side">
            <ol class="text" id="target" aria-labelledby="target-name"></ol>
            <h2 id="target-name"></h2>
          </div>
        </div>
      </div>
      <p class="readout" id="readout" aria-live="polite"></p>
    </section>
    <section data-label="map">
      <div class="map" id="map"><div id="sheet"><canvas id="canvas" role="img"></canvas></div></div>
      <div class="scale"><span id="least"></span><i id="ramp"></i><span id="most"></span></div>
      <p class="note" id="note" hidden></p>
    </section>
  </div>
  <section id="all" data-label="all" hidden>
    <h2 data-say="all"></h2>
    <div class="heads" id="thumbs" role="group" data-label="all"></div>
    <p class="note" data-say="ranges"></p>
  </section>
  <noscript>This page draws itself with JavaScript, which is switched off.</noscript>
</main>
<script type="application/json" id="record">@record@</script>
<script>
"use strict";
const record = JSON.parse(document.getElementById("record").textContent);
const at = id => document.getElementById(id);
const T = record.target_tokens.length, S = record.tokens.length, [L, H] = record.shape;
const cross = record.kind === "cross";

// The page speaks the language of the browser, if it is one of these.
const WORDS = {
  en: {
    play: "▶ Play", stop: "■ Stop", views: "View of the texts", lines: "Lines", flow: "Flow",
    layer: "Layer", head: "Head", limit: "Threads from", texts: "Texts", map: "Heat map", all: "Layers and heads",
    ranges: "Each map has the colours of its own range. Choose one with a click or the arrow keys; L1 and H1 are "
      + "layer 0 and head 0 of the record.",
    source: cross ? "Source" : "Attended to", target: cross ? "Target" : "Attending",
    hint: (cross
      ? "Point at a word of the target to see what it was read from, or of the source to see what it was read for. "
      : "Point at a word to see what it attends to, or what attends to it. ")
      + "The arrow keys walk along and between the two.",
    forward: cross ? " was read from " : " looks at ", backward: cross ? " was read for " : " is looked at by ",
    nothing: "nothing", mean: "mean", meanOf: size => `mean of ${size}`,
    oneLayer: l => l < 0 ? "mean of the layers" : `layer ${l + 1}`,
    oneHead: h => h < 0 ? "mean of the heads" : `head ${h + 1}`,
    rounded: steps => `So that this page stays small, the weights of this map are rounded to ${steps} steps; point at `
      + "one to see between which bounds it lies.",
    strongest: (some, all) => `the strongest ${some} of ${all}`,
    sizes: `Weights of ${T} target tokens (rows) on ${S} source tokens (columns).`,
    old: "This page needs a browser from 2023 or later.",
  },
  es: {
    play: "▶ Ver", stop: "■ Parar", views: "Vista de los textos", lines: "Líneas", flow: "Flujo",
    layer: "Capa", head: "Cabeza", limit: "Hilos desde", texts: "Textos", map: "Mapa de calor", all: "Capas y cabezas",
    ranges: "Cada mapa tiene los colores de su propio intervalo. Elija uno con un clic o con las flechas; L1 y H1 son "
      + "la capa 0 y la cabeza 0 del registro.",
    source: cross ? "Origen" : "Palabras miradas", target: cross ? "Destino" : "Palabras que miran",
    hint: (cross
      ? "Señale una palabra del destino para ver de dónde se leyó, o una del origen para ver para qué se leyó. "
      : "Señale una palabra para ver a cuáles atiende, o cuáles la atienden. ")
      + "Las flechas recorren cada texto y pasan de uno a otro.",
    forward: cross ? " se leyó de " : " mira a ", backward: cross ? " se leyó para " : " la miran ",
    nothing: "nada", mean: "media", meanOf: size => `media de ${size}`,
    oneLayer: l => l < 0 ? "media de las capas" : `capa ${l + 1}`,
    oneHead: h => h < 0 ? "media de las cabezas" : `cabeza ${h + 1}`,
    rounded: steps => `Para que esta página sea pequeña, los pesos de este mapa están redondeados a ${steps} niveles; `
      + "señale uno para ver entre qué límites está.",
    strongest: (some, all) => `los ${some} más fuertes de ${all}`,
    sizes: `Pesos de ${T} símbolos del destino (filas) sobre ${S} del origen (columnas).`,
    old: "Esta página necesita un navegador de 2023 o posterior.",
  },
};
const language = navigator.language.startsWith("es") ? "es" : "en", say = WORDS[language];
document.documentElement.lang = language;
for (const element of document.querySelectorAll("[data-say]")) element.textContent = say[element.dataset.say];
for (const element of document.querySelectorAll("[data-label]")) {
  element.setAttribute("aria-label", say[element.dataset.label]);
}
at("play").textContent = say.play;

const sides = {
  source: { tokens: record.tokens, name: say.source },
  target: { tokens: record.target_tokens, name: say.target },
};

// Lightness changes evenly from nothing to much, so that the order of the colours survives any kind of sight.
const RAMPS = {
  light: [[250, 248, 243], [203, 221, 233], [126, 179, 214], [47, 121, 176], [17, 71, 124], [8, 33, 70]],
  dark: [[24, 28, 36], [28, 58, 92], [31, 101, 142], [52, 152, 165], [132, 204, 163], [246, 240, 170]],
};
const darkness = matchMedia("(prefers-color-scheme: dark)");
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let shades, colours;  // 256 of them, from nothing to much, as pixels and as text
function mix() {
  const ramp = RAMPS[darkness.matches ? "dark" : "light"], last = ramp.length - 1;
  const mixed = Array.from({ length: 256 }, (_, k) => {
    const place = last * k / 255, low = Math.min(last - 1, Math.floor(place));
    return ramp[low].map((c, i) => Math.round(c + (ramp[low + 1][i] - c) * (place - low)));
  });
  shades = new Uint32Array(new Uint8Array(mixed.flatMap(shade => [...shade, 255])).buffer);
  colours = mixed.map(shade => `rgb(${shade.join(" ")})`);
  at("ramp").style.background = `linear-gradient(to right, ${[0, 51, 102, 153, 204, 255].map(k => colours[k])})`;
}
const step = share => Math.round(255 * Math.min(1, Math.max(0, share)));
const about = record.parts ? "≈\u202f" : "";
const percent = value => {
  const text = (100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0);
  return `${about}${text}\u202f%`;
};

// Weights. Many are packed: each byte holds several steps, as digits of a number, and each step has its value.
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
function matrix(l, h) {  // T * S weights, row after row; -1 is the mean over all
  if (!record.parts) {
    const chosen = pick(record.weights, l).flatMap(ofLayer => pick(ofLayer, h)), sum = new Float64Array(T * S);
    for (const rows of chosen) rows.forEach((row, i) => row.forEach((w, j) => { sum[i * S + j] += w; }));
    return Float32Array.from(sum, w => w / chosen.length);
  }
  const [name, index] = place(l, h), { steps, per_byte: each, values, bytes } = record.parts[name];
  const length = Math.ceil(T * S / each), start = index * length, out = new Float32Array(length * each);
  for (let b = 0, o = 0; b < length; b++) {
    let rest = bytes[start + b];
    for (let k = 0; k < each; k++) {
      out[o++] = values[rest % steps];
      rest = (rest / steps) | 0;
    }
  }
  return out.subarray(0, T * S);
}
function bounds(weight) {  // between which a rounded weight lies
  if (!record.parts || weight === 0) return "";
  const { edges } = record.parts[place(layer, head)[0]];
  const above = Math.max(1, edges.findIndex(edge => weight <= edge * (1 + 1e-6)));
  const digits = edges[above] < 0.01 ? 2 : 1, unit = 10 ** digits;
  const text = (round, edge) => (round(100 * edge * unit) / unit).toFixed(digits);
  return ` (${text(Math.floor, edges[above - 1])} to ${text(Math.ceil, edges[above])}\u202f%)`;
}
function range(values) {
  let least = 0, most = 1e-12;
  for (const value of values) {
    if (value > most) most = value;
    if (value < least) least = value;
  }
  return [least, most];
}

// Tokens: white space has to be seen, and a special token to look like one.
const BLANKS = { " ": "␣", "\u2581": "␣", "\u00a0": "␣", "\n": "↵", "\r": "↵", "\t": "⇥" };
const shown = token => [...token].map(c => BLANKS[c] ?? c).join("") || "∅";
const cut = (token, longest) => {
  const text = [...shown(token)];
  return text.length > longest ? text.slice(0, longest - 1).join("") + "…" : text.join("");
};
const special = token => /^(\[[^\]\s]+\]|<[^>\s]+>)$/u.test(token);
function rightToLeft(tokens) {
  const text = tokens.filter(token => !special(token)).join("");
  const count = pattern => (text.match(pattern) || []).length;
  return count(/[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/gu) > count(/\p{L}/gu) / 2;
}

let layer = -1, head = -1, weights, least, most, flowing = false, threshold = null, flow = [];
let active = { side: "target", index: 0 }, pinned = false, timer = null, asked = false;
const other = side => side === "source" ? "target" : "source";
const seenFrom = (side, index) => side === "target"
  ? weights.subarray(index * S, (index + 1) * S) : Float32Array.from({ length: T }, (_, i) => weights[i * S + index]);
const written = () => timer ? active.index : T - 1;  // a time-lapse has come as far as this row

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
  if (part) {
    at("note").textContent = say.rounded(part.steps);
  }
  chooseThreads();
}

// The threads of the flow view: the strongest first, and no more than a reader could tell apart.
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
  at(`${side}-name`).textContent = sides[side].name;
  const list = at(side);
  sides[side].rtl = rightToLeft(sides[side].tokens);
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
    button.classList.toggle("special", special(token));
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
    list.append(item);
    return button;
  });
  list.addEventListener("scroll", repaint);
  list.addEventListener("keydown", event => {
    const { side: current, index } = active, rtl = sides[current].rtl, last = sides[current].tokens.length - 1;
    // In two columns, words stand below each other and the other text beside them.
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

// Brings a word into sight within its box, and leaves the page where it is.
function reveal(side, index) {
  const box = flowing ? at("scroller") : at(side), outer = box.getBoundingClientRect();
  const inner = sides[side].buttons[index].getBoundingClientRect();
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top + 6;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom + 6;
}

function show(side, index, fromMap = false) {
  active = { side, index };
  const seen = seenFrom(side, index), far = other(side), greatest = range(seen)[1];
  const turn = darkness.matches ? 0.66 : 0.9;  // from where on the other colour of text is the more legible one
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
  readout.replaceChildren(element("b", cut(sides[side].tokens[index], 24)), verb);
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
}
function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  made.dir = text ? "auto" : "ltr";
  return made;
}
function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; drawThreads(); drawMap(); });
}
function fit(canvas, width, height) {  // in pixels of the screen
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
  const line = (i, j, colour, share, faintest) => {
    const a = ends.source[j], b = ends.target[i];
    if (flowing ? !a.seen && !b.seen : !a.seen || !b.seen) return;
    const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2;
    pen.strokeStyle = colour;
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
  const seen = seenFrom(side, index), greatest = range(seen)[1];
  seen.forEach((weight, k) => {
    if (weight < 0.06 * greatest || weight < Math.min(0.01, 0.3 * most)) return;
    const [i, j] = side === "target" ? [index, k] : [k, index];
    line(i, j, mark, weight / greatest, 0.2);
  });
}

// The heat map: one row for each target token, one column for each source token. Of a large one only what is in sight
// is drawn; its labels stay.
const canvas = at("canvas"), map = at("map");
const FAMILY = "system-ui, 'Noto Sans', 'Noto Sans CJK JP', sans-serif";
let grid = {};
function measure() {
  const pen = canvas.getContext("2d"), room = map.clientWidth;
  const [rows, columns] = [record.target_tokens, record.tokens].map(tokens => tokens.map(token => cut(token, 16)));
  let font, left, cell, widths;
  for (const size of [12, 10]) {  // where 12 pixels do not fit, 10 may
    pen.font = font = `${size}px ${FAMILY}`;
    left = Math.ceil(Math.max(...rows.map(label => pen.measureText(label).width))) + 14;
    widths = columns.map(label => pen.measureText(label).width);
    // Cells of a size to see well, or smaller ones where the whole map is then in sight.
    const fitting = Math.floor((0.78 * innerHeight - Math.max(...widths) - 18) / T);
    cell = Math.min(34, Math.floor((room - left - 4) / S), fitting < 18 ? 34 : fitting);
    if (cell >= size + 2) break;
  }
  cell = Math.max(11, cell);  // and beyond that, one scrolls
  const upright = columns.map((label, j) => [...label].length === 1 || widths[j] <= cell - 3);
  const top = Math.ceil(Math.max(10, ...widths.filter((_, j) => !upright[j]))) + 14;
  grid = { font, rows, columns, left, top, cell, upright };
  at("sheet").style.width = `${left + cell * S + 3}px`;
  at("sheet").style.height = `${top + cell * T + 3}px`;
  const width = Math.min(left + cell * S + 3, map.clientWidth), height = Math.min(top + cell * T + 3, map.clientHeight);
  [grid.width, grid.height] = [width, height];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-label", say.sizes);
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
      pen.textAlign = upright[j] ? "center" : "left";
      if (upright[j]) pen.translate(0, -6);
      else pen.rotate(-Math.PI / 2);
      pen.fillText(columns[j], 0, 0);
      pen.restore();
    }
  });
  clipped(left - 2, top - 2, width, height, () => {
    for (let i = i0; i < Math.min(i1, until + 1); i++) {
      for (let j = j0; j < j1; j++) {
        pen.fillStyle = colours[step((weights[i * S + j] - least) / (most - least))];
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
    const pair = `${cut(record.target_tokens[i], 80)} ← ${cut(record.tokens[j], 80)}`;
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

// A map of each head, and of the means.
const thumbs = [];
const called = (l, h) => `${say.oneLayer(l)}, ${say.oneHead(h)}`;
function buildThumbs() {
  at("all").hidden = L * H === 1;
  const indices = size => [...Array(size).keys(), ...(size > 1 ? [-1] : [])], ls = indices(L), hs = indices(H);
  const box = at("thumbs");
  const name = text => { const made = document.createElement("span"); made.textContent = text; box.append(made); };
  // Few heads are drawn larger than many.
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
      [map.width, map.height] = [Math.min(S, 96), Math.min(T, 96)];
      map.style.aspectRatio = Math.min(2, Math.max(0.5, S / T));
      button.append(map);
      box.append(button);
      // What is alone in its row or column has no mean, and is chosen as the mean of one.
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
  const { width, height } = thumbs[0].map, column = Uint8Array.from({ length: S }, (_, j) => Math.floor(j * width / S));
  const dots = new Float32Array(width * height), image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (const { map, l, h } of thumbs) {
    if (performance.now() - since > 15) {  // a reader can go on meanwhile
      await new Promise(done => setTimeout(done));
      if (mine !== painting) return;
      since = performance.now();
    }
    // Of the weights that share a dot, the greatest: a thin line of them stays one.
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
    dots.forEach((value, dot) => { pixels[dot] = shades[step((value - low) / (high - low))]; });
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
  for (const side of ["source", "target"]) at(side).dir = sides[side].rtl && !flowing ? "rtl" : "ltr";
  at("scroller").scrollTop = 0;
  chooseThreads();
  show(active.side, active.index);
}
at("lines").addEventListener("click", () => look(false));
at("flow").addEventListener("click", () => look(true));
at("threshold").addEventListener("input", () => { threshold = at("threshold").value; chooseThreads(); repaint(); });
function redraw() { measure(); show(active.side, active.index); }
function recolour() { mix(); paintThumbs(); show(active.side, active.index); }

async function start() {
  if (record.parts) await Promise.all(Object.values(record.parts).map(inflate));
  at("hint").textContent = say.hint;
  at("note").hidden = !record.parts;
  at("stage").classList.toggle("long", S > 48 || T > 48);
  chooser("layer", L, value => [value, head]);
  chooser("head", H, value => [layer, value]);
  buildThumbs();
  build("source");
  build("target");
  choose(-1, -1);
  mix();
  measure();
  look(false);
  paintThumbs();
  addEventListener("resize", redraw);
  darkness.addEventListener("change", recolour);
  document.fonts.ready.then(redraw);
  document.documentElement.dataset.ready = "";
}
if (typeof DecompressionStream === "undefined") {
  at("hint").textContent = say.old;
} else start();
</script>
</body>
</html>
"""

__all__ = ["check_drawable", "render_html"]

// Marks with data-handle follow the pointer and the arrow keys at once; the server redraws at most every PAUSE ms. The
// nearest mark within REACH pixels is taken; a click elsewhere moves the query. LIMIT and STEP are those of app.py;
// element, trigger and watch are those of Gradio.
const PAUSE = 200, LOST = 2000, REACH = 22;
let handle = null, dragged = false, focused = null, local = null, waiting = null, sent = -LOST, redrawn = true;
const drawing = () => element.querySelector('svg');
const frame = () => drawing().dataset.frame.split(' ').map(Number);
const marks = (name) => element.querySelectorAll(`[data-handle="${name}"]`);
const screen = (x, y) => {  // in units of the picture
  const [left, top, width, height, x0, x1, y0, y1] = frame();
  return [left + (x - x0) / (x1 - x0) * width, top + (1 - (y - y0) / (y1 - y0)) * height];
};
const place = (event) => {
  const [left, top, width, height, x0, x1, y0, y1] = frame();
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing().getScreenCTM().inverse());
  const across = (at.x - left) / width, up = 1 - (at.y - top) / height;
  return {x: x0 + across * (x1 - x0), y: y0 + up * (y1 - y0), inside: across >= 0 && across <= 1 && at.y >= top};
};
const rounded = (value) => Math.round(Math.min(LIMIT, Math.max(-LIMIT, value)) / STEP) * STEP;
const show = () => {
  for (const mark of marks(local.handle)) {
    const [from, to] = [screen(+mark.dataset.x, +mark.dataset.y), screen(local.x, local.y)];
    let across = to[0] - from[0], down = to[1] - from[1];
    if ('along' in mark.dataset) {  // on a line, the query moves along the curve
      const points = drawing().querySelector('.curve').points, share = (local.x + LIMIT) / (2 * LIMIT);
      down = mark.querySelector('.ink') ? points[Math.round(share * (points.length - 1))].y - from[1] : 0;
    }
    mark.setAttribute('transform', `translate(${across} ${down})`);
  }
};
const arrived = () => {
  const drawn = marks(local.handle)[0]?.dataset, near = (name) => Math.abs(drawn[name] - local[name]) < STEP / 2;
  return drawn && near('x') && ('along' in drawn || near('y'));
};
// Once the mark is released and its place is drawn, or a preset has removed it, later pictures stand as they are.
const settle = () => {
  if (!local || handle || !(arrived() || !marks(local.handle).length)) return;
  for (const mark of marks(local.handle)) mark.removeAttribute('transform');
  local = null;
};
// A place is sent after the picture of the previous one has arrived, or after LOST ms without it: Gradio would send the
// previous place again instead of one that is sent earlier.
const send = () => {
  clearTimeout(waiting);
  if (!local) return;
  const pause = sent + (redrawn ? PAUSE : LOST) - performance.now();
  if (pause > 0) { waiting = setTimeout(send, pause); return; }
  if (redrawn && arrived()) { settle(); return; }  // moved back, or against the border
  [sent, redrawn] = [performance.now(), false];
  trigger('moved', local);
};
const move = (name, x, y) => {
  local = {handle: name, x: rounded(x), y: rounded(y)};
  show();
  send();
};
const nearest = (event) => {
  let found = null, least = REACH;
  for (const reach of element.querySelectorAll('.reach')) {
    const box = reach.getBoundingClientRect(), x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
    const far = Math.hypot(event.clientX - x, event.clientY - y);
    if (far <= least) [found, least] = [reach.parentNode.dataset.handle, far];
  }
  return found ?? event.target.closest('[data-handle="q"]')?.dataset.handle;
};
element.addEventListener('pointerdown', (event) => {
  dragged = false;
  handle = event.button || !drawing() ? null : nearest(event);
  if (!handle) return;
  element.setPointerCapture(event.pointerId);
  event.preventDefault();
  [...marks(handle)].at(-1).focus({preventScroll: true});
});
element.addEventListener('pointermove', (event) => {
  if (!handle) return;
  dragged = true;
  const {x, y} = place(event);
  move(handle, x, y);
});
for (const released of ['pointerup', 'pointercancel']) {
  element.addEventListener(released, () => { handle = null; settle(); });
}
element.addEventListener('click', (event) => {
  if (dragged || !drawing()?.contains(event.target)) return;
  const {x, y, inside} = place(event);
  if (inside && !nearest(event)) move('q', x, y);
});
element.addEventListener('keydown', (event) => {
  const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
  const mark = event.target.closest('[data-handle]');
  if (!way || !mark) return;
  event.preventDefault();
  const {handle: name, x, y} = mark.dataset, size = (event.shiftKey ? 10 : 1) * 2 * STEP;
  const from = local?.handle === name ? local : {x: +x, y: +y};
  move(name, from.x + way[0] * size, from.y + way[1] * size);
});
element.addEventListener('focusin', (event) => { focused = event.target.dataset.handle; });
element.addEventListener('focusout', (event) => { if (event.target.isConnected) focused = null; });
// After a redraw, which may show an older place than that of the pointer. Gradio changes the elements that differ.
watch('value', () => requestAnimationFrame(() => {
  redrawn = true;
  if (!drawing()) return;
  if (focused && document.activeElement === document.body) {
    [...marks(focused)].at(-1)?.focus({preventScroll: true});
  }
  settle();
  if (!local) return;
  show();
  if (!arrived()) send();
}));

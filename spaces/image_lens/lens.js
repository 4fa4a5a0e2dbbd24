// Give the frame of a heat map the height of its page.
"use strict";

function mapLoaded(frame) {
  const page = frame.contentDocument;
  new ResizeObserver(() => { frame.style.height = `${Math.min(page.body.scrollHeight + 4, 2400)}px`; }).observe(page.body);
}

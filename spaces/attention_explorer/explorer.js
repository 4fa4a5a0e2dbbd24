// The frames of the alignments: their height, one hint for all of them, and a source word that is pointed at or has the
// focus in one of them shows in all.
"use strict";

function alignmentLoaded(frame) {
  const page = frame.contentDocument;
  page.getElementById("hint").hidden = true;
  new ResizeObserver(() => { frame.style.height = `${Math.min(page.body.scrollHeight + 4, 2000)}px`; }).observe(page.body);
  const words = (each) => [...(each.contentDocument?.querySelectorAll("#source button") ?? [])];
  const point = (event) => {
    const word = event.target.closest("#source button");
    if (!word) return;
    const same = (each) => each.title === word.title, place = words(frame).filter(same).indexOf(word);
    for (const other of document.querySelectorAll(".result iframe")) {
      if (other === frame) continue;
      const twin = words(other).filter(same)[place], { PointerEvent } = other.contentWindow;
      twin?.dispatchEvent(new PointerEvent("pointerenter", { pointerType: "mouse" }));
    }
  };
  page.addEventListener("pointerover", point);
  page.addEventListener("focusin", point);
}

// The pages in frames have the theme that is chosen for the site, and each frame is as high as its page.
const frames = document.querySelectorAll("figure.page iframe");
const theme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
const tell = (frame) => frame.contentWindow.postMessage({ theme: theme() }, "*");
for (const frame of frames) {
  const ready = () => {
    tell(frame);
    try {
      frame.height = frame.contentDocument.documentElement.scrollHeight;
    } catch {
      // The site was opened from a folder, where a page cannot be measured.
    }
  };
  frame.addEventListener("load", ready);
  if (frame.contentDocument?.readyState === "complete") ready();
}
new MutationObserver(() => frames.forEach(tell)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

// Browsers give no Worker to a page that was opened from a folder. There, an iframe runs the same script: it has a
// window of its own, and what a worker is told and tells passes through here.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      frame.title = "search";
      const inside = frame.contentWindow;
      const own = new URL(url, document.baseURI);
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          // A worker's addresses are relative to its script.
          Object.assign(script, { src: new URL(address, own), onload: resolve, onerror: reject });
          inside.document.head.append(script);
        });
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(next)), Promise.resolve());
      // A worker's postMessage reaches those who made it, not its own window.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.tell = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      this.ready = load(own);
    }
    postMessage(data) {
      this.ready.then(() => this.tell(data));
    }
    terminate() {}
  };
}

// What the pages of records share: data, language, theme, and tokens as texts.
const record = JSON.parse(document.getElementById("record").textContent);
const at = id => document.getElementById(id);
const root = document.documentElement;

// A page is in the language of the browser if that is one of these, otherwise in English.
const language = navigator.language.startsWith("es") ? "es" : "en";
root.lang = language;
function speak(words) {
  for (const element of document.querySelectorAll("[data-say]")) element.textContent = words[element.dataset.say];
  for (const element of document.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", words[element.dataset.label]);
  }
}

// The theme is that of the system, or the one that the site around the page sends: postMessage({ theme: "dark" }, "*").
const darkness = matchMedia("(prefers-color-scheme: dark)");
const themed = theme => { root.dataset.theme = theme; };
const dark = () => root.dataset.theme === "dark";
themed(darkness.matches ? "dark" : "light");
const css = name => getComputedStyle(root).getPropertyValue(name).trim();

// Tokens: white space is made visible, and special tokens are marked.
const BLANKS = { " ": "␣", "\u2581": "␣", "\u00a0": "␣", "\n": "↵", "\r": "↵", "\t": "⇥" };
const shown = token => [...token].map(c => BLANKS[c] ?? c).join("") || "∅";
const cut = (token, longest) => {
  const text = [...shown(token)];
  return text.length > longest ? text.slice(0, longest - 1).join("") + "…" : text.join("");
};

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  made.dir = text ? "auto" : "ltr";
  return made;
}

"""The page of a demo: words in the reader's language, one look, one queue."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

if TYPE_CHECKING:
    import gradio as gr

LANGUAGES = ("en", "es")  # the first is that of readers of any other
USERS = 20  # who are served at the same time; twice as many wait

CSS = """
.gradio-container { max-width: 76rem !important; margin-inline: auto !important; }
.prose h1 { margin-block: .2em .3em; }
.prose { overflow-wrap: anywhere; }
.quiet, .quiet * { color: var(--body-text-color-subdued) !important; font-size: .92rem; }
iframe.page { width: 100%; border: 0; display: block; border-radius: .6rem; background: transparent; }
.monospace textarea { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; line-height: 1.5; }
"""


class Texts:
    """The words of a page, from a YAML file: for each key its text in each of ``LANGUAGES``.

    ``texts("key")`` is a value that Gradio shows in the language of the browser, wherever a component takes text, also
    in an update. ``texts.say(request, "key", ...)`` is for what only the server knows.

    Args:
        path: the file.

    Raises:
        ValueError: a text is missing, or is no text.
    """

    def __init__(self, path: Path) -> None:
        self.texts: dict[str, dict[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key, languages in self.texts.items():
            if tuple(languages) != LANGUAGES or not all(isinstance(text, str) for text in languages.values()):
                raise ValueError(f"{path.name}: {key} needs a text in each of {', '.join(LANGUAGES)}, in this order.")

    def __call__(self, key: str) -> "gr.i18n.I18nData":
        return self.i18n(self._known(key))

    @property
    def i18n(self) -> "gr.I18n":
        """All texts, as ``launch`` passes them to the page."""
        import gradio as gr

        return gr.I18n(**{language: {key: self.texts[key][language] for key in self.texts} for language in LANGUAGES})

    def say(self, request: "gr.Request | None", key: str, /, **values: Any) -> str:
        """The text in the language that the request's browser asks for, with the values in their places."""
        return self.texts[self._known(key)][language_of(request)].format(**values)

    def _known(self, key: str) -> str:
        if key not in self.texts:
            raise KeyError(f"There is no text {key!r} in texts.yaml.")
        return key


def language_of(request: "gr.Request | None") -> str:
    """The first of ``LANGUAGES`` in the order of ``Accept-Language`` (RFC 9110, section 12.5.4)."""
    headers: Mapping[str, str] = {} if request is None else request.headers
    wanted = []
    for place, entry in enumerate((headers.get("accept-language") or "").split(",")):
        tag, _, quality = entry.strip().partition(";q=")
        try:
            wanted.append((-float(quality or 1), place, tag.split("-")[0].lower()))
        except ValueError:
            continue
    return next((language for _, _, language in sorted(wanted) if language in LANGUAGES), LANGUAGES[0])


def refuse(sentence: str) -> NoReturn:
    """Answer bad input in the page, without a traceback in the log."""
    import gradio as gr

    raise gr.Error(sentence, print_exception=False)


def launch(page: "gr.Blocks", texts: Texts, css: str = "", **options: Any) -> Any:
    """Serve a page: a queue for 20 users at a time, words in two languages, one look with nothing from elsewhere.

    Args:
        css: of this page, after the common one.
        options: others of ``Blocks.launch``.
    """
    import gradio as gr
    import torch

    torch.set_num_threads(1)  # a step of a small model is too little to share, and several users are served at once
    page.queue(max_size=2 * USERS, default_concurrency_limit=USERS)
    # The system's own fonts: Gradio's themes would fetch theirs from elsewhere.
    theme = gr.themes.Soft(
        primary_hue="blue",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    return page.launch(theme=theme, css=CSS + css, i18n=texts.i18n, run_history=False, ssr_mode=False, **options)


__all__ = ["CSS", "LANGUAGES", "Texts", "language_of", "launch", "refuse"]

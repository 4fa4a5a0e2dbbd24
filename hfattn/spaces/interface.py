"""Serve the page of a Space with texts in the user's language, a common style and a queue."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

if TYPE_CHECKING:
    import gradio as gr
    from transformers import PreTrainedTokenizerBase

LANGUAGES = ("en", "es")  # the first is the default
BADGE = {"en": "TOY", "es": "JUGUETE"}  # of a model that was trained when the Space was built
MOST_UNKNOWN = 0.25  # share of unknown words in a text; above it, an answer would be a guess
USERS = 20  # concurrent users; twice as many can wait

CSS = """
.gradio-container { max-width: 76rem !important; margin-inline: auto !important; }
.prose h1 { margin-block: .2em .3em; }
.prose { overflow-wrap: anywhere; }
.quiet, .quiet * { color: var(--body-text-color-subdued) !important; font-size: .92rem; }
.prose .toy { display: inline-block; padding: .15em .6em; border-radius: 1em; background: #fcd34d; color: #422006;
  font-size: .75rem; font-weight: 700; letter-spacing: .06em; line-height: 1.4; vertical-align: middle; }
button[role="tab"][aria-selected="true"] { color: var(--block-title-text-color) !important; }
.prose code .token.string { color: inherit !important; }
.monospace textarea { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; line-height: 1.5; }
@media (max-width: 40rem) { .prose h1 { font-size: 1.4rem; } }
"""


class Texts:
    """Texts of a page in each of ``LANGUAGES``, read from a YAML file.

    ``texts("key")`` returns a value that Gradio shows in the language of the browser, in components and updates.
    ``texts.say(request, "key", ...)`` returns a string for text that the server generates, and ``texts.refuse`` shows
    it as an error message.

    Args:
        path: the YAML file.

    Raises:
        ValueError: if a text is missing or not a string.
    """

    def __init__(self, path: Path) -> None:
        self.texts: dict[str, dict[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key, languages in self.texts.items():
            if tuple(languages) != LANGUAGES or not all(isinstance(text, str) for text in languages.values()):
                raise ValueError(f"{path.name}: {key} needs a text for each of {', '.join(LANGUAGES)}, in this order.")

    def __call__(self, key: str) -> "gr.i18n.I18nData":
        return self.i18n(self._known(key))

    @property
    def i18n(self) -> "gr.I18n":
        """Return all texts in the form that ``launch`` passes to Gradio."""
        import gradio as gr

        return gr.I18n(**{language: {key: self.texts[key][language] for key in self.texts} for language in LANGUAGES})

    def say(self, request: "gr.Request | None", key: str, /, **values: Any) -> str:
        """Return the text in the language of the request, with the values filled in."""
        return self.texts[self._known(key)][language_of(request)].format(**values)

    def toy(self, heading: str, notice: str) -> "gr.i18n.I18nData":
        """Return a heading with a badge TOY beside it, and below it what the toy model was trained on.

        Args:
            heading: key of a text in Markdown that begins with a heading.
            notice: key of the text that says what the model was trained on.
        """
        key, notices = f"{heading}_{notice}", self.texts[self._known(notice)]
        self.texts[key] = {}
        for language, text in self.texts[self._known(heading)].items():
            title, *rest = text.split("\n", 1)
            badge = f'<span class="toy">{BADGE[language]}</span>'
            self.texts[key][language] = "\n".join([f"{title} {badge}", *rest, "", notices[language]])
        return self(key)

    def refuse(self, request: "gr.Request | None", key: str, /, **values: Any) -> NoReturn:
        """Show a text as an error message in the page, without a traceback in the log."""
        import gradio as gr

        raise gr.Error(self.say(request, key, **values), print_exception=False)

    def _known(self, key: str) -> str:
        if key not in self.texts:
            raise KeyError(f"There is no text {key!r} in texts.yaml.")
        return key


def knows(tokenizer: "PreTrainedTokenizerBase", text: str) -> bool:
    """Return whether a text has tokens, and at most the share ``MOST_UNKNOWN`` of them is unknown to a tokenizer."""
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    return bool(tokens) and tokens.count(tokenizer.unk_token_id) <= MOST_UNKNOWN * len(tokens)


def number(value: float, digits: int = 2) -> str:
    """Format a number with a typographic minus sign, without "-0.00"."""
    text = f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.1e}"
    return (text if float(text) else text.lstrip("-")).replace("-", "−")


def language_of(request: "gr.Request | None") -> str:
    """Return the preferred language of ``Accept-Language`` (RFC 9110, section 12.5.4)."""
    headers: Mapping[str, str] = {} if request is None else request.headers
    wanted = []
    for place, entry in enumerate((headers.get("accept-language") or "").split(",")):
        tag, _, quality = entry.strip().partition(";q=")
        try:
            wanted.append((-float(quality or 1), place, tag.split("-")[0].lower()))
        except ValueError:
            continue
    return next((language for _, _, language in sorted(wanted) if language in LANGUAGES), LANGUAGES[0])


def own_language_first(texts: Mapping[str, Sequence[str]], request: "gr.Request | None") -> list[str]:
    """Return texts, which are given by language, those in the language of the reader first."""
    own = language_of(request)
    return [text for language in sorted(texts, key=lambda each: each != own) for text in texts[language]]


def launch(page: "gr.Blocks", texts: Texts, css: str = "", **options: Any) -> Any:
    """Serve a page with a queue for 20 users, texts in two languages, and a style that loads nothing from other sites.

    Args:
        css: style of this page, added to the common style.
        options: further arguments of ``Blocks.launch``.
    """
    import gradio as gr
    import torch

    torch.set_num_threads(1)  # one thread per user: small models do not gain from more
    page.queue(max_size=2 * USERS, default_concurrency_limit=USERS)
    # System fonts, because the themes of Gradio download theirs; and colors with a contrast of 4.5 (WCAG 2.2, 1.4.3).
    theme = gr.themes.Soft(
        primary_hue="blue",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    ).set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_label_text_color="*primary_700",
        block_title_text_color="*primary_700",
        input_placeholder_color="*neutral_500",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_700",
        button_secondary_background_fill_hover_dark="*primary_600",
        checkbox_label_background_fill_selected="*primary_600",
    )
    return page.launch(theme=theme, css=CSS + css, i18n=texts.i18n, run_history=False, ssr_mode=False, **options)

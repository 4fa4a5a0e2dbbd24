"""Add generated content to the site (mkdocs.yml loads this file).

- Pages outside docs/ (the README, the READMEs of recipes and Spaces) become pages of the site. Links work as in the
  repository, and linked files are copied.
- Each public module gets a page with its names in the order of ``__all__``. Names of modules and model classes in code
  become links to these pages.
- ``<!-- figure NAME: caption -->`` inserts a figure of figures.py, for light and dark pages.
  ``<!-- page NAME: caption -->`` inserts an interactive page of hfattn.explaining.
- ``<!-- shot NAME: caption -->`` inserts the picture of a demo that screenshots.py takes. ``<!-- texts colored -->``
  inserts a text with several kinds of scores.
- Formulas between dollar signs become MathML, which browsers render without a script.
"""

import html
import importlib
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert as to_mathml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

import figures  # noqa: E402

from hfattn import models  # noqa: E402

MODULES = (
    "hfattn",
    "hfattn.api",
    "hfattn.adapters",
    "hfattn.attention",
    "hfattn.explaining",
    "hfattn.loading",
    "hfattn.generation",
    "hfattn.evaluation",
    "hfattn.likelihood",
    "hfattn.predicting",
    "hfattn.predicted_files",
    "hfattn.tokenizers",
    "hfattn.data",
    "hfattn.generated",
    "hfattn.training",
    "hfattn.metrics",
    "hfattn.hub",
    "hfattn.exchange",
    "hfattn.spaces",
)
ELSEWHERE = ("*.md", "recipes/*.md", "recipes/*/README.md", "spaces/*/README.md")

_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_PLACE = re.compile(r"<!-- (figure|page|shot|texts) (\w+)(?:: (.*?))? -->", re.DOTALL)
_NAME = re.compile(r"(?<!\[)`([\w.]+)`")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> None:
    """Add recipes, Spaces and modules to the navigation."""
    assert config.nav is not None
    sections: dict[str, list[Any]] = {name: pages for entry in config.nav for name, pages in entry.items()}
    for folder in ("recipes", "spaces"):
        for readme in sorted(ROOT.glob(f"{folder}/*/README.md")):
            sections[folder.capitalize()].append({readme.parent.name: readme.relative_to(ROOT).as_posix()})
    sections["API"] += [{module: f"api/{module}.md"} for module in MODULES]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add pages from outside docs/ and generated pages."""
    for module in MODULES:
        # The functions of hfattn itself are on the page of hfattn.api.
        names = importlib.import_module(module if module != "hfattn" else "hfattn.models").__all__
        text = f"# `{module}`\n\n::: {module}\n    options:\n      members: [{', '.join(names)}]\n"
        files.append(File.generated(config, f"api/{module}.md", content=text))
    for name in figures.FIGURES:
        for theme in figures.THEMES:
            files.append(File.generated(config, f"figures/{name}.{theme}.svg", content=figures.draw(name, theme)))
    for name in figures.PAGES:
        files.append(File.generated(config, f"figures/{name}.html", content=figures.page(name)))

    pages = [file for file in files.documentation_pages() if not file.src_uri.startswith("api/")]
    texts = {DOCS / file.src_uri: file.content_string for file in pages}
    for path in sorted(path for pattern in ELSEWHERE for path in ROOT.glob(pattern)):
        texts[path] = path.read_text(encoding="utf-8")
        files.append(_from_repository(path, config))
    linked = {target for path, text in texts.items() for target, _ in _links(path, text)}
    for target in sorted(linked):
        if files.get_file_from_path(_site_path(target)) is None and target.is_file():
            files.append(_from_repository(target, config))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert figures, rewrite links, and rank pages in the search."""
    if page.file.src_uri.startswith("api/"):
        page.meta["search"] = {"boost": 0.1}  # guides come first
        return markdown
    path = DOCS / page.file.src_uri
    path = path if path.exists() else ROOT / page.file.src_uri
    if path.name == "RESULTS.md":
        page.meta["hide"] = ["navigation", "toc"]  # its table needs the width of the window
    markdown = _PLACE.sub(lambda match: _placed(match, page, files), markdown).replace("  # fmt: skip\n", "\n")
    here = posixpath.dirname(page.file.src_uri)
    pieces = _FENCE.split(markdown)
    for i in range(0, len(pieces), 2):
        pieces[i] = _LINK.sub(
            lambda match: f"]({posixpath.relpath(_site_path(_target(path, match[1])), here or '.')}{match[2] or ''})",
            pieces[i],
        )
        pieces[i] = _NAME.sub(lambda match: _named(match, here), pieces[i])
    return "".join(pieces)


def _named(match: re.Match[str], here: str) -> str:
    """Return a link to the page of a module, or to a model class on its page."""
    name = match[1]
    if name in models.__all__:
        address = f"api/hfattn.md#hfattn.{name}"
    elif name in MODULES[1:]:  # "hfattn" is also a command
        address = f"api/{name}.md"
    else:
        return match[0]
    return f"[{match[0]}]({posixpath.relpath(address, here or '.')})"


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Convert formulas to MathML, and set the language of Spanish pages."""
    content = _FORMULA.sub(
        lambda match: to_mathml(html.unescape(match[2]).strip(), display="inline" if match[1] == "span" else "block"),
        content,
    )
    return f'<div lang="es">{content}</div>' if page.file.src_uri.endswith(".es.md") else content


def _from_repository(path: Path, config: MkDocsConfig) -> File:
    return File.generated(config, _site_path(path), abs_src_path=str(path))


def _site_path(path: Path) -> str:
    """Return the path of a repository file within the site."""
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()


def _target(page: Path, link: str) -> Path:
    target = Path(posixpath.normpath(page.parent / link))
    return target / "README.md" if target.is_dir() else target


def _links(page: Path, text: str) -> list[tuple[Path, str]]:
    prose = "".join(_FENCE.split(text)[::2])
    return [(_target(page, match[1]), match[2]) for match in _LINK.finditer(prose)]


def _placed(match: re.Match[str], page: Page, files: Files) -> str:
    kind, name, caption = match[1], match[2], " ".join((match[3] or "").split())
    if kind == "texts":
        return f'<div class="colored">\n{figures.colored()}\n</div>'
    text = f"<figcaption markdown='span'>{caption}</figcaption>"
    if kind == "shot":
        address = get_relative_url(f"assets/{name.replace('_', '-')}.webp", page.url)
        image = f'<img class="shot" src="{address}" alt="{html.escape(caption)}" loading="lazy">'
        return f'<figure markdown="1">{image}\n{text}\n</figure>'
    if kind == "page":
        address = get_relative_url(f"figures/{name}.html", page.url)
        frame = f'<iframe src="{address}" title="{html.escape(caption)}" height="620" loading="lazy"></iframe>'
        return f'<figure class="page" markdown="1">{frame}\n{text}\n</figure>'
    # A picture that is much wider than the page scrolls, so that its labels stay legible, and is a link to itself.
    images = [
        f'<a class="only-{theme}" href="{address}"><img src="{address}" alt="{html.escape(caption)}" loading="lazy" '
        f'style="min-width: {figures.width(name, theme) * 0.7:.0f}px"></a>'
        for theme in figures.THEMES
        for address in [get_relative_url(f"figures/{name}.{theme}.svg", page.url)]
    ]
    return f'<figure class="drawn" markdown="1"><div class="scrolled">{"".join(images)}</div>\n{text}\n</figure>'

"""Build the tables of the documentation from recorded runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from hfattn.spaces.building import space_names
from hfattn.spaces.settings import read_space
from hfattn.training.expected import SUFFIX, expected_files, read_expected

ROOT = Path(__file__).parent.parent


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def recorded() -> str:
    """Return recipes with their recorded and unrecorded configurations."""
    known: dict[str, tuple[list[str], list[str]]] = {}
    for path in expected_files(ROOT / "recipes"):
        runs = read_expected(path).full.recorded
        lists = known.setdefault(path.parent.name, ([], []))
        lists[0 if runs else 1].append(f"`{path.name.removesuffix(SUFFIX)}`")
    rows = [
        [f"[{recipe}](../recipes/{recipe}/README.md)", *(", ".join(configs) or "–" for configs in lists)]
        for recipe, lists in known.items()
    ]
    return _table(["recipe", "measured", "not measured yet"], rows)


def spaces() -> str:
    """Return the Spaces with their descriptions, models and environment variables."""
    rows = []
    for name in space_names():
        folder = ROOT / "spaces" / name
        _, front_matter, _ = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        about = yaml.safe_load(front_matter)["short_description"]
        models = [f"{model} (`{settings.variable}`)" for model, settings in read_space(folder).items()]
        rows.append([f"[{name}](../spaces/{name}/README.md)", about, ", ".join(models) or "none"])
    return _table(["Space", "what it shows", "models"], rows)


TABLES: dict[str, Callable[[], str]] = {"recorded": recorded, "spaces": spaces}

"""Build the tables of the documentation from recorded runs.

``python docs/tables.py`` writes each table into the pages of docs/ that have a place for it: the lines
``<!-- table NAME -->`` and ``<!-- /table NAME -->``.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev

import yaml

from hfattn.spaces.building import space_names
from hfattn.spaces.settings import read_space
from hfattn.training.expected import (
    SUFFIX,
    Recorded,
    duration,
    expected_files,
    metric_name,
    metric_of,
    own_runs,
    read_expected,
)

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


def _score(name: str) -> tuple[str, Recorded]:
    """Return the score of a recorded run of a configuration, or the mean of its seeds, and the first run."""
    path = ROOT / "recipes" / f"{name}.yaml"
    expected = read_expected(path.with_suffix(SUFFIX))
    runs = own_runs(expected, path) or expected.full.recorded
    scores = [run.score for run in runs if run.overrides == runs[0].overrides]
    score, name = f"{mean(scores):.4g}", metric_name(metric_of(runs[0], expected))
    if len(scores) > 1:
        score, name = f"{score} ± {stdev(scores):.2g}", f"{name}, {len(scores)} seeds"
    return f"{score} {name}", runs[0]


def real_models() -> str:
    """Return the models of the Spaces with the configurations that train a real one and the toy."""
    rows = []
    for name in space_names():
        for model, settings in read_space(ROOT / "spaces" / name).items():
            config, *overrides = shlex.split(settings.real)
            score = "–" if overrides else _score(config)[0]
            toy = f"`{settings.recipe}/{settings.config}`{', smaller' if settings.overrides else ''}"
            rows.append([name, f"`{model}`", f"`hfattn train {settings.real}`", score, toy])
    return _table(["Space", "model", "trained by", "score", "toy"], rows)


# Tasks in the order of the page, each with the configurations to start from.
TASKS = {
    "translate short strings, such as dates or spellings": ["translation/dates"],
    "translate sentences, from 10,000 pairs": ["translation/spa_eng_bahdanau", "translation/spa_eng_transformer"],
    "compare attention with none": ["translation/spa_eng_sutskever", "translation/spa_eng_luong"],
    "classify texts, fastest": ["baselines/sst2_tfidf_svm", "baselines/imdb_tfidf_svm"],
    "classify texts and show the words that were read": ["classification/imdb_attention"],
    "classify texts with a pretrained model": ["classification/imdb_minilm", "classification/imdb_distilbert"],
    "classify texts of thousands of tokens": ["classification/imdb_minilm_window"],
    "classify texts with few trained weights": ["classification/sst2_minilm_lora", "baselines/sst2_minilm_features"],
    "classify pairs of texts": ["classification/sick_minilm"],
    "predict a number for pairs of texts": ["classification/sick_relatedness_stories15m"],
    "choose the right one of several texts": ["multiple_choice/spa_eng_transformer"],
    "classify images": ["image_classification/fashion_cnn", "image_classification/fashion_dinov2"],
    "describe images and show where each word looked": ["image_captioning/digit_scenes"],
    "find images by a text": ["image_text/digits"],
    "learn from images without labels": ["self_supervised/fashion_dino"],
    "find sentences of the same meaning": ["sentence_encoder/sick_minilm"],
    "find names in texts": ["token_classification/names_bilstm", "token_classification/names_distilbert"],
    "answer questions from a text": ["question_answering/facts_distilbert"],
    "write text, one character at a time": ["char_lm/quickstart"],
    "continue text with a fine-tuned GPT": [
        "causal_lm/shakespeare_stories15m_lora",
        "causal_lm/shakespeare_stories15m",
    ],
    "complete prompts as in your examples": ["causal_lm/dates_stories15m"],
    "adapt a model to a domain without labels": ["masked_lm/imdb_distilbert"],
    "make a classifier smaller": ["distillation/imdb_bilstm"],
}


def which() -> str:
    """Return the configurations to start from for each task, with the time, hardware and score of a recorded run."""
    rows = []
    for task, names in TASKS.items():
        for index, name in enumerate(names):
            score, run = _score(name)
            rows.append(
                [
                    "" if index else task,
                    f"[`{name}`](../recipes/{name.split('/')[0]}/README.md)",
                    score,
                    duration(run.training["wall_time_seconds"]),
                    "GPU" if "gpu" in run.hardware else "CPU",
                ]
            )
    return _table(["you want to", "start from", "score", "time", "hardware"], rows)


def comparison() -> str:
    """Return what ``benchmarks/comparison`` measured."""
    recorded = json.loads((ROOT / "docs" / "records" / "comparison.json").read_text(encoding="utf-8"))
    rows = [
        [
            each["task"] if index == 0 else "",
            each["system"],
            str(each["lines"]),
            " ± ".join(f"{each[field]:.3f}" for field in ("score", "deviation") if field in each)
            + f" {each['metric']}",
            f"{each['CPU seconds']} s",
            f"{each['megabytes']} MB",
            each["card"],
        ]
        for pair in recorded.values()
        for index, each in enumerate(pair)
    ]
    return _table(["task", "package", "lines", "score", "CPU time", "left on the disk", "model card"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "comparison": comparison,
    "recorded": recorded,
    "real_models": real_models,
    "spaces": spaces,
    "which": which,
}

_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- /table \2 -->\n)", re.DOTALL)


def filled(page: str) -> str:
    """Return the text of a page with its tables."""
    return _PLACE.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}\n{match[3]}", page)


def main() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            path.write_text(filled(text), encoding="utf-8")
            print(f"Written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

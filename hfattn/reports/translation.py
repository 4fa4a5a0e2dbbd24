"""What a translation run reports: its scores, translations and alignments."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data import Pair
from ..explain import alignment, plot_alignment, save_html
from ..metrics import ExactMatch, translation_report
from ..training.results import scores_of_part


def part_scores(
    part: str, pairs: Sequence[Pair], translations: Mapping[str, Sequence[str]], likelihoods: Mapping[str, float]
) -> dict[str, Any]:
    """Return all scores of one part of the data.

    Args:
        part: name of the part, which prefixes the names in ``likelihoods``.
        pairs: the pairs that were translated.
        translations: their translations by search, "greedy" and perhaps "beam".
        likelihoods: the scores of ``TranslationScores`` over all pairs of the part.

    Returns:
        The scores of greedy search; those of the beam under ``beam``; exact match under ``exact_match_by_kind``.
    """
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    reports = {search: translation_report(sources, texts, references) for search, texts in translations.items()}
    greedy = reports.pop("greedy")
    return {
        **scores_of_part(likelihoods, part),
        **greedy,
        "pairs": likelihoods[f"{part}_pairs"],
        "translated": greedy["pairs"],
        **reports,
        "exact_match_by_kind": exact_match_by_kind(pairs, translations["greedy"]),
    }


def exact_match_by_kind(pairs: Iterable[Pair], translations: Sequence[str]) -> dict[str, float]:
    """Return the exact match of each kind of pair, such as each written form of a date, best first."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for pair, translation in zip(pairs, translations, strict=True):
        if pair.kind:
            kinds.setdefault(pair.kind, []).append((translation, pair.target))
    metric = ExactMatch()
    scores = {}
    for kind, texts in kinds.items():
        predictions, references = zip(*texts, strict=True)
        scores[kind] = metric.compute(predictions=predictions, references=references)["exact_match"]
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def draw_alignments(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    sources: Sequence[str],
) -> list[str]:
    """Translate each source and save its alignment as a PNG image and as an HTML page.

    Returns:
        The files' names without suffix; empty if the model has no attention.
    """
    model.set_attn_implementation("eager")  # the fused implementations return no weights
    inputs = tokenizer(list(sources), padding=True, truncation=True, return_tensors="pt").to(model.device)
    outputs = model.generate(**inputs, output_attentions=True, return_dict_in_generate=True)
    if not outputs.cross_attentions or outputs.cross_attentions[0] is None:
        return []
    names = [f"alignment-{i + 1}" for i in range(len(sources))]
    for i, (name, source) in enumerate(zip(names, sources, strict=True)):
        record = alignment(outputs, i, tokenizer=tokenizer, target_tokenizer=target_tokenizer, **inputs)
        plot_alignment(record, title=source).savefig(folder / f"{name}.png", dpi=150)
        save_html(record, folder / f"{name}.html", title=source)
    return names


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return what the run prints at its end: scores, translations, and the commands to go on with."""
    lines = [
        "",
        f"{'':16}{'pairs':>8}{'exact match':>14}{'BLEU':>8}{'chrF':>8}{'token accuracy':>16}{'nats/token':>12}",
    ]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part.replace('_', ' '):16}{score['pairs']:8d}{score['exact_match']:14.4f}{score['bleu']:8.2f}"
            f"{score['chrf']:8.2f}{score['token_accuracy']:16.4f}{score['nats_per_token']:12.4f}"
        )
        if "beam" in score:
            beam = score["beam"]
            lines.append(f"{'  beam search':16}{'':8}{beam['exact_match']:14.4f}{beam['bleu']:8.2f}{beam['chrf']:8.2f}")
    if "unseen_forms" in results["metrics"]:
        lines += ["", "Exact match on written forms that were not in the training data:"]
        for kind, share in results["metrics"]["unseen_forms"]["exact_match_by_kind"].items():
            lines.append(f"  {kind:40}{share:.3f}")
    lines.append("")
    lines += [f"{sample['source']} → {sample['translation']}" for sample in results["samples"]]
    example = results["samples"][0]["source"]
    lines += ["", f"Model, results and pictures: {folder}", f'Translate: hfattn translate {folder} "{example}"']
    if results["alignments"]:
        lines.append(f'Show the alignment: hfattn attend {folder} "{example}"')
    return "\n".join(lines)

"""The report of the recipe translation."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data import Pair, Pairs
from ..explaining import alignment
from ..generation import encode_sources, translate_texts
from ..hub.fingerprints import synthetic_text
from ..loading import save_translator
from ..metrics import ExactMatch, decode_generated, translation_report
from ..models.pipeline_attn_translation import TranslationMixin, source_prefix
from ..models.strict_config import own_fields
from ..pictures import Picture
from ..plots import bleu_varies
from .base import TrainedRun, leave_behind, shown_part


class EvaluatedPairs(NamedTuple):
    """The evaluation of one part.

    Attributes:
        likelihoods: scores of the right translations of all pairs of the part, by ``TranslationScores``.
        translated: the pairs that the model translated.
        generated: the ids of their translations (n, T) by search, "greedy" and perhaps "beam".
        before: for a pretrained model, the scores of its greedy translations before training.
    """

    likelihoods: dict[str, Any]
    translated: list[Pair]
    generated: dict[str, np.ndarray]
    before: dict[str, Any] | None = None


def report(
    run: TrainedRun,
    parts: Mapping[str, Pairs],
    evaluated: Mapping[str, EvaluatedPairs],
    target_tokenizer: PreTrainedTokenizerBase,
    tuning: Mapping[str, Any] | None = None,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run; its tokenizer is that of the sources.
        parts: the pairs of each part, training included.
        evaluated: what was measured on the other parts.
        target_tokenizer: the tokenizer of the targets, which may be that of the sources.
        tuning: what was trained of which pretrained model, as ``tuning_facts`` returns it; None from scratch.
    """
    config, shown = asdict(run.config), shown_part(evaluated)
    separate = None if target_tokenizer is run.tokenizer else target_tokenizer
    own_code = isinstance(run.model, TranslationMixin)
    if own_code:
        save_translator(run.folder, run.model, run.tokenizer, separate)
    else:
        run.save()
    translations = {
        part: {search: decode_generated(target_tokenizer, ids) for search, ids in each.generated.items()}
        for part, each in evaluated.items()
    }
    metrics = {part: part_scores(each, translations[part]) for part, each in evaluated.items()}
    best = translations[shown].get("beam", translations[shown]["greedy"])
    own, drawn = config["sample"]["pairs"], evaluated[shown].translated[: config["sample"]["translations"]]
    if run.texts != "samples":
        own = (own if run.texts == "own_words" else []) or [[synthetic_text(run.tokenizer), "–"]]
        drawn, best = [], []
    shown_pairs = [*own, *((pair.source, pair.target) for pair in drawn)]
    if own:
        beams, penalty = (config["evaluation"][name] for name in ("num_beams", "length_penalty"))
        search = (1, None) if beams is None else (beams, float(penalty))
        best = [*translate_texts(run.model, run.tokenizer, [source for source, _ in own], separate, *search), *best]
    samples = [
        {"source": source, "reference": reference, "translation": translation}
        for (source, reference), translation in zip(shown_pairs, best, strict=False)
    ]
    sources = [sample["source"] for sample in samples]
    by_length = metrics[shown].get("beam", metrics[shown])["by_source_length"]
    if bleu_varies(by_length):
        bars = {"runs": {run.command.config.stem: by_length}, "title": run.title}
        run.pictures.append(Picture("bleu_by_length.png", "bleu_by_length", bars))
    alignments = alignment_pictures(run.model, run.tokenizer, separate, sources[: config["sample"]["alignments"]])
    run.pictures.extend(alignments)
    # The pipeline reads whole sources only.
    longest = run.tokenizer.model_max_length
    whole = (text for text in sources if len(run.tokenizer(text, verbose=False).input_ids) <= longest)
    model, train_set = run.model, run.trainer.train_dataset
    needs = [] if run.tokenizer.is_fast else ["sentencepiece"]  # Marian, M2M100
    codes = {"source_language": "src_lang", "target_language": "tgt_lang"}
    spoken = {name: getattr(run.tokenizer, field, None) for name, field in codes.items()}
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].name,
            "vocabulary": len(target_tokenizer) - len(target_tokenizer.all_special_ids),
            "source_vocabulary": len(run.tokenizer) - len(run.tokenizer.all_special_ids),
            "tokenizer": config["tokenizer"]["kind"] if tuning is None else tuning["base_model"],
            "separate": separate is not None,
            **{name: config["tokenizer"][name] for name in ("lowercase", "strip_punctuation")},
            **{name: config["data"][name] for name in ("max_source_length", "max_target_length", "too_long")},
            "dropped": train_set.dropped,
            "parts": {part: {"pairs": len(pairs), "sha256": pairs.fingerprint} for part, pairs in parts.items()},
        },
        "model": {
            "model_type": model.config.model_type,
            "preset": config["model"].get("preset"),
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config)) if own_code},
            **({} if tuning is None else {**tuning, **spoken, "prefix": source_prefix(model.config), "needs": needs}),
        },
        "metrics": metrics,
        "training": run.training_facts("pairs", len(train_set)),
        "samples": samples,
        "alignments": [Path(picture.file).stem for picture in alignments],
        "example": next(whole, None) if alignments and own_code else None,
    }
    leave_behind(run, sections, summary(run.folder, sections), sources[:2], loss="nats_per_token")


def part_scores(evaluated: EvaluatedPairs, translations: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return all scores of a part.

    Returns:
        The scores of the likelihoods and of greedy search; those of the beam under ``beam``, and those before training
        under ``before``; exact match by kind of
        pair under ``exact_match_by_kind``, and their numbers under ``pairs_by_kind``.
    """
    pairs = evaluated.translated
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    reports = {search: translation_report(sources, texts, references) for search, texts in translations.items()}
    greedy = reports.pop("greedy")
    return {
        **evaluated.likelihoods,
        **greedy,
        "pairs": evaluated.likelihoods["pairs"],
        "translated": greedy["pairs"],
        **reports,
        **({} if evaluated.before is None else {"before": evaluated.before}),
        "exact_match_by_kind": exact_match_by_kind(pairs, translations["greedy"]),
        "pairs_by_kind": dict(Counter(pair.kind for pair in pairs if pair.kind)),
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


def alignment_pictures(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    sources: Sequence[str],
) -> list[Picture]:
    """Translate each source, and return the pictures of its alignment; none if the model has no attention."""
    model.set_attn_implementation("eager")  # the fused implementations return no weights
    inputs: dict[str, Any] = encode_sources(model, tokenizer, sources)
    outputs = model.generate(**inputs, output_attentions=True, output_logits=True, return_dict_in_generate=True)
    if not outputs.cross_attentions or outputs.cross_attentions[0] is None:
        return []
    records = [
        alignment(outputs, i, tokenizer=tokenizer, target_tokenizer=target_tokenizer, **inputs)
        for i in range(len(sources))
    ]
    return [
        Picture(f"alignment-{i}.png", "attention", {"record": record, "title": source})
        for i, (record, source) in enumerate(zip(records, sources, strict=True), 1)
    ]


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return the printed summary: scores, translations, and the next commands."""
    lines = [
        "",
        f"{'':16}{'pairs':>8}{'exact match':>14}{'BLEU':>8}{'chrF':>8}{'token accuracy':>16}{'nats/token':>12}",
    ]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part.replace('_', ' '):16}{score['pairs']:8d}{score['exact_match']:14.4f}{score['bleu']:8.2f}"
            f"{score['chrf']:8.2f}{score['token_accuracy']:16.4f}{score['nats_per_token']:12.4f}"
        )
        for name, label in (("beam", "  beam search"), ("before", "  before")):
            if name in score:
                each = score[name]
                lines.append(f"{label:16}{'':8}{each['exact_match']:14.4f}{each['bleu']:8.2f}{each['chrf']:8.2f}")
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

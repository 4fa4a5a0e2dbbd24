"""The report of the recipe char_lm."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data import EncodedText, Text, split_positions
from ..data.text import PARTS
from ..generation import sample_text
from ..hub import texts_to_publish
from ..models.strict_config import own_fields
from .base import TrainedRun, leave_behind


def report(
    run: TrainedRun,
    text: Text,
    encoded: EncodedText,
    metrics: Mapping[str, Mapping[str, Any]],
    entropies: Mapping[str, float],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        text: the whole text, of which the model was trained on a part.
        encoded: its ids.
        metrics: scores of each part but the training part.
        entropies: the text's "unigram entropy" and "bigram entropy", in nats per character.
    """
    config, model, tokenizer, trainer = asdict(run.config), run.model, run.tokenizer, run.trainer
    prompt, length, seed = config["sample"]["prompt"], config["sample"]["max_new_tokens"], trainer.args.seed
    samples = {
        str(temperature): sample_text(model, tokenizer, prompt, temperature, length, seed)
        for temperature in config["sample"]["temperatures"]
    }
    model.generation_config.update(
        do_sample=True, temperature=0.8, max_new_tokens=200, suppress_tokens=[tokenizer.pad_token_id]
    )
    run.save()
    places = dict(zip(PARTS, split_positions(len(encoded), config["data"]["split"]), strict=False))
    unknown = {part: int((encoded.ids[places[part]] == tokenizer.unk_token_id).sum()) for part in metrics}
    windows = trainer.state.global_step * trainer.get_total_train_batch_size(trainer.args)
    sections: dict[str, Any] = {
        "data": {
            "name": text.name,
            "sha256": text.fingerprint,
            "characters": len(text),
            "vocabulary": len(tokenizer) - len(tokenizer.all_special_ids),
            "split": config["data"]["split"],
            "stateful": config["data"]["stateful"],
            "unknown_characters": unknown,
            **{f"{name.replace(' ', '_')}_nats": value for name, value in entropies.items()},
        },
        "model": {
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config))},
        },
        "metrics": metrics,
        "training": trainer.training_facts("characters", windows * config["data"]["max_length"]),
        "samples": {"prompt": prompt, "by_temperature": samples},
    }
    texts = [prompt, *samples.values()][:2]
    leave_behind(
        run,
        sections,
        summary(run.folder, sections),
        texts,
        loss="nats_per_character",
        levels=entropies,
        texts=texts_to_publish(run.config, "own_words"),
    )


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return the printed summary: scores beside the entropies of the text, and samples."""
    lines = ["", f"{'':24}{'nats/char':>10}{'bits/char':>10}{'accuracy':>10}{'perplexity':>12}{'characters':>12}"]
    for name in ("unigram", "bigram"):
        nats = results["data"][f"{name}_entropy_nats"]
        lines.append(f"{name + ' entropy':24}{nats:10.4f}{nats / math.log(2):10.4f}")
    for part, score in results["metrics"].items():
        lines.append(
            f"{'this model, ' + part:24}{score['nats_per_character']:10.4f}{score['bits_per_character']:10.4f}"
            f"{score['accuracy']:10.4f}{score['perplexity']:12.3f}{score['characters']:12d}"
        )
    for part, number in results["data"]["unknown_characters"].items():
        if number:
            lines.append(f"{number:,} characters of {part} are [UNK], which counts as right where it is predicted.")
    for temperature, sample in results["samples"]["by_temperature"].items():
        lines += ["", f"--- temperature {temperature}", sample]
    lines += ["", f"Model, results and curve: {folder}", f"Generate text: hfattn generate {folder} --prompt ..."]
    return "\n".join(lines)

"""The report of the recipe causal_lm."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data import Documents, EncodedDemonstrations, PackedBlocks, PackedText, Streams, TextSize, pack, prompt_ids
from ..errors import UserError
from ..generation import is_chat, prompt_fault, prompt_length, read_prompt, sample_text, write_completions
from ..hub import texts_to_publish
from ..likelihood import BackwardDirection, score_rows
from ..loading import max_positions, reads_backward
from ..metrics import text_scores
from ..tokenizers import uncovered_characters
from ..training.causal_lm import EvaluatedTexts
from ..training.sample_config import CausalSampleConfig
from .base import TrainedRun, leave_behind


def report(
    run: TrainedRun,
    train_set: PackedBlocks | Streams | EncodedDemonstrations,
    parts: Mapping[str, EvaluatedTexts],
    metrics: Mapping[str, Mapping[str, Any]],
    written: Mapping[str, Sequence[str]],
    tuning: Mapping[str, Any],
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        train_set: the training examples.
        parts: the texts of each part, training included.
        metrics: scores of each part but the training part; for a pretrained model with its scores ``before``.
        written: what ``continuations`` returned "after" training, and "before" it for a pretrained model.
        tuning: what was trained of which pretrained model, as ``tuning_facts`` returns it.
    """
    config, model, trainer = asdict(run.config), run.model, run.trainer
    if model.config.model_type == "bilm":
        rows = trainer.args.eval_batch_size
        metrics = {
            part: {**scores, "backward": backward_scores(model, run.tokenizer, parts[part], rows)}
            for part, scores in metrics.items()
        }
    sample = config["sample"]
    model.generation_config.update(do_sample=True, temperature=0.8, top_k=0, max_new_tokens=sample["max_new_tokens"])
    run.save()
    pairs = [(prompt, name) for prompt in sample["prompts"] for name in sample["decoding"]]
    samples = [
        {"prompt": prompt, "decoding": name, **{when: texts[i] for when, texts in written.items()}}
        for i, (prompt, name) in enumerate(pairs)
    ]
    if isinstance(train_set, PackedBlocks | Streams):
        windows = trainer.state.global_step * trainer.get_total_train_batch_size(trainer.args)
        training = trainer.training_facts("tokens", windows * config["data"]["max_length"])
    else:
        training = run.training_facts("tokens", train_set.tokens)
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].examples.name,
            "max_length": config["data"]["max_length"],
            **data_facts(train_set, config["evaluation"]["stride"]),
            "parts": {part: part_facts(texts) for part, texts in parts.items()},
        },
        "model": {
            **tuning,
            "model_type": model.config.model_type,
            "vocabulary": len(run.tokenizer),
            "positions": max_positions(model.config),
            "chat": is_chat(model),
            "backward": reads_backward(model.config),
        },
        "metrics": metrics,
        "training": training,
        "samples": samples,
        # As many as the positions allow after the prompt of the card's example.
        "new_tokens": read_prompt(model, run.tokenizer, samples[0]["prompt"], 40)[1],
    }
    validation = metrics["validation"]
    levels = {"before": validation["before"]["nats_per_token"]} if "before" in validation else None
    texts = sample["prompts"][:2]
    leave_behind(
        run,
        sections,
        summary(run.folder, sections),
        texts,
        loss="nats_per_token",
        levels=levels,
        texts=texts_to_publish(run.config, "own_words"),
    )


def with_text_scores(score: Mapping[str, Any], size: TextSize) -> dict[str, Any]:
    """Return the scores per token together with those per character, byte and word, for comparing tokenizers."""
    return {**score, **text_scores(score["nats_per_token"] * score["tokens"], **asdict(size))}


def backward_scores(model: Any, tokenizer: PreTrainedTokenizerBase, texts: EvaluatedTexts, rows: int) -> dict[str, Any]:
    """Return the scores of the backward direction of a bilm on a part, in the windows of the forward direction."""
    documents, windows = texts.examples, texts.dataset
    assert isinstance(documents, Documents)
    assert isinstance(windows, PackedBlocks)
    packed = pack(documents.contents, tokenizer, backward=True)
    dataset = PackedBlocks(packed.ids, windows.block, windows.stride)
    return with_text_scores(score_rows(BackwardDirection(model), dataset, rows=rows), packed.size)


def exact_match(run: TrainedRun, dataset: EncodedDemonstrations, number: int) -> dict[str, Any]:
    """Return the share of completions that a model writes as they are in the data, up to white space at both ends.

    Args:
        run: the run; its model writes greedily, and of a conversation the last answer, if that calls no tool.
        dataset: the examples.
        number: number of examples, which are chosen at random.
    """
    indices = [i for i, example in enumerate(dataset.examples) if example.last_turn[1]]
    if not indices:
        return {}
    chosen = sorted(Random(run.trainer.args.seed).sample(indices, min(number, len(indices))))
    turns = [dataset.examples[i].last_turn for i in chosen]
    tools = [dataset.examples[i].tools for i in chosen]
    prompts = [prompt_ids(turn[0], run.tokenizer, "A prompt", each) for turn, each in zip(turns, tools, strict=True)]
    # The last question of a conversation that was cut may not fit.
    fitting = [i for i, ids in enumerate(prompts) if 0 < len(ids) < dataset.max_length]
    longest = int(dataset.sizes[:, 1].max())
    rows = run.trainer.args.eval_batch_size
    written = write_completions(run.model, run.tokenizer, [prompts[i] for i in fitting], longest, rows)
    right = sum(text.strip() == turns[i][1].strip() for i, text in zip(fitting, written, strict=True))
    return {"exact_match": right / len(chosen), "written": len(chosen)}


def check_prompts(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> None:
    """Check that a model can continue the texts of ``sample.prompts``, which a model for chats reads as messages.

    Raises:
        UserError: one has no tokens, as many as the model has positions, or an unknown character.
    """
    for prompt in prompts:
        if missing := uncovered_characters(tokenizer, prompt):
            raise UserError(
                f"sample.prompts has {prompt!r}, and {missing[0]!r} is not in the tokenizer's vocabulary; write "
                "another prompt, or use a tokenizer that was learned with tokenizer.unknown: true."
            )
        if fault := prompt_fault(model, prompt_length(model, tokenizer, prompt)):
            raise UserError(f"sample.prompts has {prompt!r}, which {fault}.")


def continuations(model: Any, tokenizer: PreTrainedTokenizerBase, sample: CausalSampleConfig, seed: int) -> list[str]:
    """Return the continuation of each prompt with each way of decoding, all with the same seed."""
    return [
        sample_text(
            model,
            tokenizer,
            prompt,
            options.get("temperature", 1),
            sample.max_new_tokens,
            seed,
            top_k=int(options.get("top_k", 0)),
            top_p=options.get("top_p", 1),
        )
        for prompt in sample.prompts
        for options in sample.decoding.values()
    ]


def data_facts(train_set: PackedBlocks | Streams | EncodedDemonstrations, stride: int | None) -> dict[str, Any]:
    """Return the form of the data, what the loss is on, and how they become rows."""
    if isinstance(train_set, Streams):
        dropped = len(train_set.ids) - 1 - len(train_set) * train_set.window
        streams = {"streams": train_set.num_streams, "dropped_tokens": dropped}
        return {"form": "text", "loss": "all tokens", "stride": train_set.window, **streams}
    if isinstance(train_set, PackedBlocks):
        stride = stride or train_set.block
        return {"form": "text", "loss": "all tokens", "stride": stride, "dropped_tokens": train_set.dropped}
    form = train_set.form
    loss = "the completion" if form == "prompt_completion" else "the messages of the assistant"
    return {"form": form, "loss": loss, "packing": train_set.packing, "rows": len(train_set)}


def part_facts(texts: EvaluatedTexts) -> dict[str, Any]:
    """Return the size and the fingerprint of one part of the data."""
    examples, tokens = texts.examples, texts.tokens
    facts = {"characters": examples.counts.total(), "unknown_tokens": tokens.unknown, "sha256": examples.fingerprint}
    if isinstance(tokens, PackedText):
        return {"documents": len(examples), "tokens": len(tokens), **facts}
    counts = {"cut": tokens.cut, "left_out": tokens.left_out}
    return {"examples": len(examples), "tokens": tokens.tokens, "learned_tokens": tokens.learned, **counts, **facts}


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return the printed summary: scores before and after training, and samples."""
    columns = {
        "perplexity": ("perplexity", "12.3f"),
        "bits/char": ("bits_per_character", "11.4f"),
        "bits/byte": ("bits_per_byte", "11.4f"),
        "per word": ("perplexity_per_word", "12.4g"),
        "accuracy": ("accuracy", "10.4f"),
        "tokens": ("tokens", "10d"),
    }
    widths = [int(form.split(".")[0].rstrip("df")) for _, form in columns.values()]
    lines = ["", f"{'':20}" + "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))]
    for part, after in results["metrics"].items():
        rows = ((f"{part}, before", after.get("before")), (part, after), (f"{part}, backward", after.get("backward")))
        for name, score in rows:
            if score is not None:
                lines.append(f"{name:20}" + "".join(f"{score[key]:{form}}" for key, form in columns.values()))
        if "exact_match" in after:
            lines.append(f"{'':20}exact match of {after['written']} completions: {after['exact_match']:.3f}")
    for part, facts in results["data"]["parts"].items():
        if facts.get("cut"):
            lines.append(
                f"{part}: {facts['cut']} of {facts['examples']} examples are cut to {results['data']['max_length']} "
                f"tokens, and {facts['left_out']} are left out because nothing of them is left to learn"
            )
    for sample in results["samples"]:
        lines += ["", f"--- {sample['decoding']}", sample["after"]]
    lines += [
        "",
        f"Model, results, curve and samples: {folder}",
        f"Generate text: hfattn generate {folder} --prompt ...",
    ]
    return "\n".join(lines)

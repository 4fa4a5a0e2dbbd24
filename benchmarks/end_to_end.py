"""Compare how long a translator takes from its first step to a fixed score, with Marian in Seq2SeqTrainer.

    python -m benchmarks end_to_end [--threads 1] [--device cpu] [--rounds 5] [--write]

The pairs are the generated sentences of ``recipes/translation/phrases.yaml``. The translator has width 128, 2 + 2
layers and 4 heads. Both programs have the same initial weights, tokenizer, AdamW and schedule, and as many tokens in a
batch without its padding. Marian is trained as the documentation of transformers shows it: ``Seq2SeqTrainer`` with
random batches of 64 pairs and ``predict_with_generate``. hfattn has what its recipes have on a CPU: batches by tokens,
the loss in chunks, and lean steps of generation (docs/speed.md). After every 50 steps, 500 unseen sentences are
translated with greedy search; training ends when 80% of them equal their references. Each round has another seed, of
the weights and of the order of the pairs. Before anything is timed, the losses of both on the same pairs are compared.
``--write`` writes docs/records/end_to_end.json and the table of docs/speed.md.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from benchmarks.generation import marian_of
from benchmarks.harness import ROOT, Benchmark, Group, run, titled_tables
from hfattn import VaswaniConfig, VaswaniForConditionalGeneration
from hfattn.data import EncodedPairs
from hfattn.generated import GENERATED
from hfattn.metrics import TranslationScores
from hfattn.metrics.translation import decode_generated
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import ReliableSeq2SeqTrainer, Seq2SeqArguments, Seq2SeqCollator
from hfattn.training.progress import ProgressLines

TRAINING, VALIDATION, LONGEST = 30_000, 500, 40  # pairs, and tokens of a text
PAIRS = 64  # of a batch of Marian
SCORE = 0.8  # exact match that ends training
MARIAN, OURS = "Marian, Seq2SeqTrainer", "hfattn, ReliableSeq2SeqTrainer"
OPTIONS: dict[str, Any] = {
    "max_steps": 4000,  # never reached
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 100,
    "per_device_eval_batch_size": 250,
    "predict_with_generate": True,
    "eval_strategy": "steps",
    "eval_steps": 50,
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}


class StopAtScore(TrainerCallback):
    """Ends training after an evaluation with the score."""

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        control.should_training_stop = kwargs["metrics"]["eval_exact_match"] >= SCORE


def build_data() -> tuple[PreTrainedTokenizerBase, dict[str, EncodedPairs]]:
    """Return the tokenizer of both languages, and the encoded pairs of training and validation."""
    phrases: Any = GENERATED["phrases"]
    parts = {"train": phrases.draw("train", TRAINING, 0), "validation": phrases.draw("validation", VALIDATION, 0)}
    texts = [text for pair in parts["train"].items for text in (pair.source, pair.target)]
    tokenizer = build_tokenizer(TokenizerConfig(kind="wordpiece", vocab_size=4000, lowercase=True), texts, ends=True)
    return tokenizer, {
        part: EncodedPairs(pairs, tokenizer, tokenizer, LONGEST, LONGEST) for part, pairs in parts.items()
    }


def build_model(tokenizer: PreTrainedTokenizerBase, seed: int) -> VaswaniForConditionalGeneration:
    set_seed(seed)
    config = VaswaniConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        encoder_layers=2,
        decoder_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        lm_head_bias=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
    )
    model = VaswaniForConditionalGeneration(config)
    model.generation_config.max_new_tokens = LONGEST
    return model


def exact_match(tokenizer: PreTrainedTokenizerBase) -> Callable[[EvalPrediction], dict[str, float]]:
    """Return the ``compute_metrics`` of Marian."""

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        translations, references = (
            decode_generated(tokenizer, ids) for ids in (prediction.predictions, prediction.label_ids)
        )
        return {"exact_match": sum(map(str.__eq__, translations, references)) / len(references)}

    return compute


def training(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, parts: dict[str, EncodedPairs], seed: int
) -> Seq2SeqTrainer:
    """Return the trainer of a model: that of the recipes for one of hfattn."""
    options: dict[str, Any] = {**OPTIONS, "seed": seed, "use_cpu": model.device.type == "cpu"}
    common: dict[str, Any] = {"train_dataset": parts["train"], "eval_dataset": parts["validation"]}
    folder = tempfile.gettempdir()  # nothing is written
    trainer: Seq2SeqTrainer
    if isinstance(model, VaswaniForConditionalGeneration):
        longer = parts["train"].lengths.max(axis=1).mean()  # of the two texts of a pair, on average
        trainer = ReliableSeq2SeqTrainer(
            model,
            Seq2SeqArguments(folder, **options, batch_eval_metrics=True),
            Seq2SeqCollator(tokenizer, model),
            compute_metrics=TranslationScores(tokenizer),
            max_tokens=round(PAIRS * longer),
            **common,
        )
    else:
        trainer = Seq2SeqTrainer(
            model,
            Seq2SeqTrainingArguments(folder, **options, per_device_train_batch_size=PAIRS),
            DataCollatorForSeq2Seq(tokenizer, model),
            compute_metrics=exact_match(tokenizer),
            **common,
        )
    for printed in (PrinterCallback, ProgressLines):
        trainer.remove_callback(printed)
    trainer.add_callback(StopAtScore())
    return trainer


def end_to_end(device: torch.device) -> Iterator[Group]:
    tokenizer, parts = build_data()

    def trainer(row: str, seed: int) -> Seq2SeqTrainer:
        ours = build_model(tokenizer, seed)
        model: Any = ours if row == OURS else marian_of(ours)
        model.generation_config = ours.generation_config
        return training(model.to(device), tokenizer, parts, seed)

    def to_the_score(row: str) -> Callable[[], None]:
        seeds = count()

        def train() -> None:
            of = trainer(row, seed := next(seeds))
            of.train()
            steps = of.state.global_step
            assert steps < OPTIONS["max_steps"], f"{row}: the score was not reached with seed {seed}"
            print(f"{row}, seed {seed}: {steps} steps", flush=True)

        return train

    def check() -> None:
        losses = {}
        for row in (MARIAN, OURS):
            of = trainer(row, 0)
            assert of.data_collator is not None
            batch = of.data_collator([parts["validation"][i] for i in range(PAIRS)]).to(device)
            losses[row] = of.model.eval()(**batch).loss.item()
        assert abs(losses[OURS] / losses[MARIAN] - 1) < 1e-5, losses

    yield Group(f"exact match {SCORE}", {row: to_the_score(row) for row in (MARIAN, OURS)}, check)


TITLES = {"end_to_end": ("A translator from its first step to the score", "training")}
BENCHMARK = Benchmark(
    "end_to_end", ROOT / "docs" / "speed.md", {"end_to_end": end_to_end}, partial(titled_tables, titles=TITLES)
)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)

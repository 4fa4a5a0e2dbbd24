"""Train a sentence encoder, from scratch or from a pretrained model, and write a folder that can be published.

accelerate launch recipes/sentence_encoder/train.py --config recipes/sentence_encoder/sick_minilm.yaml
accelerate launch recipes/sentence_encoder/train.py --config recipes/sentence_encoder/sick_minilm.yaml \\
    --data.dataset my.jsonl --data.text_column question --data.pair_column answer --data.score_column null \\
    --sentence.loss ranking --training.metric_for_best_model recall_at_1
accelerate launch recipes/sentence_encoder/train.py --config recipes/sentence_encoder/sick_minilm.yaml --resume
"""

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from huggingface_hub.dataclasses import strict

import hfattn  # noqa: F401  registers the models of the package
from hfattn.data import EncodedTextPairs, PairNumbers, TextPairCollator, TextPairDataConfig, TextPairs, fingerprints
from hfattn.data.text_pairs import from_pairs, positives, with_negatives
from hfattn.errors import one_sentence
from hfattn.fields import at_least
from hfattn.generated.registry import GENERATED
from hfattn.hub import vocabulary_texts
from hfattn.metrics import SentenceScores
from hfattn.reports.base import TrainedRun
from hfattn.reports.sentence_encoder import baselines, report
from hfattn.sentence_encoders import SentenceEncoder, load_sentence_encoder
from hfattn.tokenizers import build_sampler
from hfattn.training import (
    RecipeCommand,
    SentenceTrainer,
    SentenceTrainingConfig,
    TrainedSentenceEncoder,
    build_sentence_encoder,
    encoder_facts,
    finishing,
    load_config,
    mined_negatives,
    pair_targets,
    parse_command,
    score_span,
    teacher_vectors,
)
from hfattn.training.sentence_encoder import own_encoder_config, vector_width
from hfattn.training.sentence_encoder_config import SCORE_LOSSES

RECIPE = "sentence_encoder"


# Configuration


@strict
@dataclass
class DataConfig(TextPairDataConfig):
    """The section ``data``: a table of pairs, or "phrases" (generated English sentences and their translations)."""

    generated = ("phrases",)

    dataset: str = "phrases"
    examples: int = at_least(1, 30_000)  # generated training pairs
    evaluation_examples: int = at_least(1, 500)  # generated pairs in each other part

    def generate(self, seed: int) -> dict[str, TextPairs]:
        drawn = GENERATED["phrases"].draw_parts(self.examples, self.evaluation_examples, seed)
        return {part: from_pairs(pairs) for part, pairs in drawn.items()}


@strict
@dataclass
class SampleConfig:
    mistakes: int = at_least(1, 10)  # pairs with the largest errors, to show
    # Texts that the code of the card compares with the first one; none: those of the data, if they are public.
    examples: list[str] = field(default_factory=list)

    def validate_examples(self) -> None:
        if len(self.examples) == 1 or not all(text.strip() for text in self.examples):
            raise ValueError(f"examples is {self.examples}; write a text, and at least one to compare it with.")


@strict
@dataclass
class Config(SentenceTrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without models and data.

    Raises:
        UserError: a section is invalid, or two do not go together.
    """
    config.check_sentences(config.data)
    if config.pretrained is None:
        own_encoder_config(config, vocab_size=1 << 20)
    config.check_training()


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data

    data, section, rows = config.data, config.sentence, arguments.per_device_eval_batch_size
    parts = data.read_parts(arguments.seed, command.datasets)
    train = parts["train"]
    if section.loss in ("ranking", "distillation"):
        train = positives(train, data.positive_labels)
    if data.training_examples is not None:
        train = train.sample(data.training_examples, arguments.seed)
    if data.negative_labels:
        train = with_negatives(train, parts["train"], data.negative_labels, arguments.seed)

    # Model: an encoder, and what it or its teacher makes of the texts before the training

    built = build_sentence_encoder(config, data, list(vocabulary_texts(config, PairNumbers(train).texts)))
    encoder = built.encoder
    facts = encoder_facts(config, built)
    vectors: dict[str, torch.Tensor | None] = dict.fromkeys(parts)
    with arguments.main_process_first(desc="vectors"):
        if section.loss == "distillation":
            teacher, width = load_sentence_encoder(config.teacher), vector_width(encoder.model.config)
            vectors["train"] = teacher_vectors(teacher, train, width, rows, sides=(0,))  # what the student learns
            vectors |= {
                part: teacher_vectors(teacher, pairs, width, rows) for part, pairs in parts.items() if part != "train"
            }
        if section.mine_negatives:
            unit = SentenceEncoder(encoder.model, encoder.tokenizer, replace(encoder.modules, normalize=True))
            found = unit.embed(PairNumbers(train).texts, rows).numpy()
            train = mined_negatives(train, found, section.negative_margin)
        before = baselines(config, data, parts, train, encoder, vectors, rows)
    given = data.score_range if section.loss == "cosine" else None  # CoSENT learns an order
    span = score_span(given, train) if section.loss in SCORE_LOSSES else (0.0, 1.0)
    encode = partial(EncodedTextPairs, tokenizer=encoder.tokenizer, max_length=data.max_length)
    encoded = {
        part: encode(pairs, targets=pair_targets(pairs, config, span), vectors=vectors[part])
        for part, pairs in parts.items()
        if part != "train"
    }
    sampler = build_sampler(config.tokenizer, encoder.tokenizer) if config.pretrained is None else None
    encoded = {
        "train": encode(
            train,
            targets=pair_targets(train, config, span),
            vectors=vectors["train"],
            sampler=sampler,
            seed=arguments.seed,
        ),
        **encoded,
    }
    labels = len(train.labels) if section.loss == "softmax" else None
    model = TrainedSentenceEncoder(encoder.model, encoder.modules.pooling, labels, section.chunk)

    # Training

    trainer = SentenceTrainer(
        model,
        arguments,
        loss=section.loss,
        scores=SentenceScores(tuple(data.positive_labels)),
        scale=section.scale,
        symmetric=section.symmetric,
        normalize=section.normalize,
        data_collator=TextPairCollator(encoder.tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, encoder.tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation pairs

    outputs = {}
    for part, dataset in encoded.items():
        if part != "train":
            metrics = trainer.predict(dataset, metric_key_prefix=part).metrics
            outputs[part] = (metrics, trainer.scores.vectors)
    body = trainer.whole_model()
    encoder.tokenizer.model_max_length = data.max_length

    # Output files: a folder that loads in transformers and in sentence-transformers, results, pictures and a card

    if trainer.is_world_process_zero():
        with finishing(command.run):
            run = TrainedRun(command, config, trainer, body, encoder.tokenizer)
            report(run, encoder.modules, parts, encoded["train"], outputs, before, facts, span)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

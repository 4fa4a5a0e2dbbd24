"""Fine-tune a pretrained model to answer questions with a part of a text.

accelerate launch recipes/question_answering/train.py --config recipes/question_answering/facts_distilbert.yaml
accelerate launch recipes/question_answering/train.py --config recipes/question_answering/squad_distilbert.yaml \\
    --data.dataset train-v1.1.json --data.validation dev-v1.1.json
accelerate launch recipes/question_answering/train.py --config recipes/question_answering/facts_distilbert.yaml --resume
"""

from dataclasses import dataclass, field
from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForQuestionAnswering, DataCollatorWithPadding

from hfattn.data import (
    EncodedQuestions,
    PartsConfig,
    Question,
    Questions,
    Source,
    check_columns,
    check_model,
    fingerprints,
    read_questions,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import set_answering
from hfattn.fields import at_least
from hfattn.generated import generated_for
from hfattn.loading import load_model, load_tokenizer
from hfattn.metrics import AnswerScores, span_logits
from hfattn.reports.base import TrainedRun
from hfattn.reports.question_answering import EvaluatedQuestions, report
from hfattn.training import (
    ExtractiveTrainer,
    FineTuningConfig,
    RecipeCommand,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    tuned,
    tuning_facts,
)

RECIPE = "question_answering"
GENERATED = generated_for(RECIPE)


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[Questions]):
    unit: ClassVar[str] = "contexts"
    generated: ClassVar[tuple[str, ...]] = tuple(GENERATED)

    # Beside "facts" (generated paragraphs): a .json file in SQuAD's format, a .jsonl file, or a dataset on the Hub.
    dataset: str = "facts"
    unanswerable: bool = False  # whether some questions have no answer, as in SQuAD 2.0
    examples: int = at_least(1, 8000)  # generated questions to train on
    evaluation_examples: int = at_least(1, 1000)  # generated questions in each of the other parts
    max_length: int = at_least(1, 384)  # tokens of a question and a window of its context, special ones included
    overlap: int = at_least(0, 128)  # tokens of the context that two windows share

    def generate(self, seed: int) -> dict[str, Questions]:
        options = {"unanswerable": self.unanswerable}
        return GENERATED[self.dataset].draw_parts(self.examples, self.evaluation_examples, seed, **options)

    def read(self, dataset: Source, split: str, train: Questions | None = None) -> Questions:
        return read_questions(
            dataset, unanswerable=self.unanswerable, config=self.config, split=split, revision=self.revision
        )

    def key(self, item: Question) -> str:
        return item.context


@strict
@dataclass
class EvaluationConfig:
    n_best: int = at_least(1, 20)  # the most probable answers, over which the probability is normalized
    max_answer_length: int = at_least(1, 30)  # tokens
    # With unanswerable questions: "no answer" is predicted if its score exceeds that of the best answer by more than
    # this.
    null_threshold: float | int = 0.0
    columns: list[str] = field(default_factory=list)  # columns of the data with a slice for each value


@strict
@dataclass
class SampleConfig:
    mistakes: int = at_least(1, 10)  # most confident mistakes to show


@strict
@dataclass
class Config(FineTuningConfig):
    data: DataConfig = field(default_factory=DataConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without model and data.

    Raises:
        UserError: a section does not describe a valid optimizer or training arguments.
    """
    config.check_training()
    if config.training.get("label_smoothing_factor"):
        raise UserError("training.label_smoothing_factor is for classes, and an answer is a span of tokens; write 0.")


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: questions and contexts -> token ids, one row per window of a context

    data = config.data
    tokenizer = load_tokenizer(config.model)
    parts = data.read_parts(arguments.seed, command.datasets)
    check_columns(config.evaluation.columns, parts["train"])
    encoded = {
        part: EncodedQuestions(
            questions,
            tokenizer,
            data.max_length,
            overlap=data.overlap,
            n_best=config.evaluation.n_best,
            max_answer_length=config.evaluation.max_answer_length,
            null_threshold=config.evaluation.null_threshold if data.unanswerable else None,
        )
        for part, questions in parts.items()
    }

    # Model

    loaded = load_model(AutoModelForQuestionAnswering, config.model, num_labels=2)
    check_model(loaded.model, tokenizer, data.max_length)
    model = tuned(loaded, config.tuning, task_type="QUESTION_ANS")

    # Training

    scores = AnswerScores()
    scores.expect(encoded["validation"])
    trainer = ExtractiveTrainer(
        model,
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=scores,
        preprocess_logits_for_metrics=span_logits,
        source=config.model,
        loaded=loaded,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation questions

    evaluated = {}
    for part, dataset in encoded.items():
        if part != "train":
            scores.expect(dataset)
            output = trainer.predict(dataset, metric_key_prefix=part)
            metrics = scores_of_part(output.metrics, part)
            evaluated[part] = EvaluatedQuestions(metrics, list(scores.answers))
    facts = tuning_facts(model, loaded, config.tuning, config.model)
    model = trainer.whole_model()
    tokenizer.model_max_length = data.max_length
    set_answering(model, encoded["train"])

    # Output files

    if trainer.is_world_process_zero():
        run = TrainedRun(command, config, trainer, model, tokenizer)
        columns, mistakes = config.evaluation.columns, config.sample.mistakes
        with finishing(command.run):
            report(run, encoded, evaluated, facts, columns=columns, mistakes=mistakes)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

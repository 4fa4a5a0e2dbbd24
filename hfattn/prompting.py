"""Zero-shot and few-shot classification: a causal language model scores the answers to a prompt by their likelihood."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .data.labeled import Labeled, LabeledTexts
from .data.parts import LabeledDataConfig, fingerprints
from .errors import UserError
from .fields import at_least, one_of
from .loading import load_language_model, max_positions
from .metrics import Accuracy, ConfusionMatrix
from .training.results import run_facts

CONTENT_FREE = ("N/A", "", "[MASK]")  # Zhao et al. 2021, section 4
SCORES = ("likelihood", "normalized", "calibrated")


@strict
@dataclass
class PromptConfig:
    """The file that describes an evaluation by prompts."""

    model: str = ""  # folder, or id on the Hub, of a causal language model
    data: LabeledDataConfig = field(default_factory=LabeledDataConfig)
    part: str = one_of(("validation", "test"), "test")  # part to evaluate
    max_examples: int | None = at_least(1, None)  # random sample of the part; null: all of it
    # Columns in braces: {text}, {pair} and the other columns of the data. The answer follows after a space.
    template: str = "{text}\nAnswer:"
    answers: list[str] | None = None  # one for each label, in their order; null: the labels
    shots: int = at_least(0, 0)  # solved examples before each prompt, from the training part
    # Part on which template and answers were chosen; null: they were not chosen by scores.
    chosen_on: str | None = one_of(("train", "validation"), None)
    max_length: int | None = at_least(2, None)  # tokens of prompt and answer; null: what the model can read
    too_long: str = one_of(("error", "cut"), "error")  # cut: leave out the first tokens of the prompt
    batch_size: int = at_least(1, 8)
    seed: int = at_least(0, 1)  # of the solved examples, and of the split and the sample of the data

    def validate_model(self) -> None:
        if not self.model:
            raise ValueError("model is empty; write the folder or the Hub id of a causal language model.")

    def validate_chosen_on(self) -> None:
        if self.chosen_on == self.part:
            raise ValueError(
                f"chosen_on and part are both {self.part}; evaluate on a part on which nothing was chosen."
            )


@dataclass(frozen=True)
class Prompts:
    """A template with its answers and solved examples.

    Attributes:
        template: text with the names of columns in braces.
        answers: the answer for each class.
        solved: solved examples, which precede each prompt.
    """

    template: str
    answers: Sequence[str]
    solved: Sequence[Labeled] = ()

    def render(self, item: Labeled) -> str:
        """Return the prompt for an example: the solved examples and the filled template, separated by empty lines.

        Raises:
            UserError: the template names a column that the data does not have, or is malformed.
        """
        solved = [f"{self._fill(each)} {self.answers[each.label]}" for each in self.solved]
        return "\n\n".join([*solved, self._fill(item)])

    def render_content_free(self, item: Labeled) -> list[str]:
        """Return the prompts without content of Zhao et al. (2021): each column contains N/A, nothing or [MASK]."""
        return [
            self.render(Labeled(word, 0, None, dict.fromkeys(item.fields, word), None if item.pair is None else word))
            for word in CONTENT_FREE
        ]

    def _fill(self, item: Labeled) -> str:
        columns = {**item.fields, "text": item.text} | ({} if item.pair is None else {"pair": item.pair})
        try:
            return self.template.format_map(columns)
        except KeyError as error:
            raise UserError(
                f"The template names the column {error}, and the columns are {', '.join(columns)}; write one of these."
            ) from None
        except (ValueError, IndexError, AttributeError, TypeError) as error:
            raise UserError(
                f"The template {self.template!r} cannot be filled ({error}); write column names in braces, and {{{{ "
                "for a brace."
            ) from None


def draw_solved(train: LabeledTexts, number: int, seed: int) -> list[Labeled]:
    """Draw solved examples from the training part, the classes as equally often as the number allows.

    Args:
        train: the training part.
        number: number of examples.
        seed: random seed; it determines the examples, their order, and the classes that have one more.

    Raises:
        UserError: a class has too few examples.
    """
    random = Random(seed)
    classes = list(range(len(train.labels)))
    random.shuffle(classes)
    wanted = [classes[i % len(classes)] for i in range(number)]
    drawn = []
    for label in classes:
        items = [item for item in train if item.label == label]
        if len(items) < wanted.count(label):
            raise UserError(
                f"{train.name} has {len(items)} training examples of {train.labels[label]}, and shots {number} needs "
                f"{wanted.count(label)}; write fewer shots."
            )
        drawn += random.sample(items, wanted.count(label))
    random.shuffle(drawn)
    return drawn


@torch.inference_mode()
def answer_log_likelihoods(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    answers: Sequence[str],
    *,
    max_length: int | None = None,
    too_long: str = "error",
    batch_size: int = 8,
) -> np.ndarray:
    """Return the log-likelihoods (N, C) in nats of C answers after each of N prompts, summed over the tokens.

    Prompt and answer, separated by a space, are encoded together after the start token, if the tokenizer has one. The
    tokens behind those of the prompt are the answer's. Answers that differ only in their last token share one forward
    pass. Padding is on the right, where a causal model does not see it.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its tokenizer.
        prompts, answers: the texts.
        max_length: maximum number of tokens of start, prompt and answer; by default, that of the model.
        too_long: "error", or "cut" to leave out the first tokens of the prompt.
        batch_size: number of sequences per forward pass.

    Raises:
        UserError: a prompt is too long or empty, an answer has no token, or ``max_length`` exceeds that of the model.
    """
    positions = max_positions(model.config)
    if max_length is not None and positions is not None and max_length > positions:
        raise UserError(f"max_length is {max_length}, and the model can read {positions} tokens; write at most that.")
    limit = max_length or positions
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    # The sequences that the model reads, each with the answers whose tokens it predicts.
    readers: dict[tuple[int, ...], list[tuple[int, int, list[int]]]] = {}
    for row, prompt in enumerate(prompts):
        length = len(encode(prompt))
        for column, answer in enumerate(answers):
            ids = encode(f"{prompt} {answer}")
            target = ids[length:]
            if not length and not start:
                raise UserError(f"Prompt {row + 1} is empty; write a template with words of its own.")
            if not target:
                raise UserError(f"The answer {answer!r} has no token of its own; write another one.")
            # The last token is only predicted, so the model does not read it.
            excess = 0 if limit is None else len(start) + len(ids) - 1 - limit
            if excess > 0 and too_long == "error":
                raise UserError(
                    f"Prompt {row + 1} has {len(start) + len(ids) - 1} tokens, and the maximum is {limit}; write fewer "
                    "shots, a longer max_length if the model allows it, or too_long: cut."
                )
            if limit is not None and len(target) + len(start) > limit:
                raise UserError(f"The answer {answer!r} has {len(target)} tokens, and the maximum is {limit}.")
            read = (*start, *ids[max(excess, 0) : -1])
            readers.setdefault(read, []).append((row, column, target))
    scores = np.zeros((len(prompts), len(answers)))
    order = sorted(readers, key=len)
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        inputs = pad_sequence([torch.tensor(read) for read in batch], batch_first=True)
        mask = pad_sequence([torch.ones(len(read), dtype=torch.long) for read in batch], batch_first=True)
        logits = model(inputs.to(model.device), attention_mask=mask.to(model.device), use_cache=False).logits
        for read, scored in zip(batch, logits, strict=True):
            for row, column, target in readers[read]:
                predicted = scored[len(read) - len(target) : len(read)].double().log_softmax(-1).cpu()
                scores[row, column] = predicted[range(len(target)), target].sum().item()
    return scores


def answer_scores(log_likelihoods: np.ndarray, answers: Sequence[str], content_free: np.ndarray) -> dict[str, Any]:
    """Return the scores (N, C) by which the answer is chosen, for each kind in ``SCORES``.

    ``likelihood`` is the log-likelihood; ``normalized`` divides it by the answer's length in bytes (acc_norm of the
    Language Model Evaluation Harness, Gao et al. 2021). ``calibrated`` divides the probabilities of the answers by
    those of prompts without content (Zhao et al. 2021, section 4: W = diag(p_cf)^-1, b = 0).

    Args:
        log_likelihoods: (N, C) in nats.
        answers: the answers, for their length.
        content_free: (M, C) log-likelihoods after the prompts without content.
    """
    shifted = np.exp(content_free - content_free.max(axis=1, keepdims=True))
    prior = (shifted / shifted.sum(axis=1, keepdims=True)).mean(axis=0)
    with np.errstate(divide="ignore"):
        calibrated = log_likelihoods - np.log(prior)
    lengths = np.array([len(answer.encode()) for answer in answers])
    return dict(zip(SCORES, (log_likelihoods, log_likelihoods / lengths, calibrated), strict=True))


def prompt_model(config: PromptConfig, path: Path) -> dict[str, Any]:
    """Evaluate a model and return the contents of ``results.json``.

    Args:
        config: the evaluation.
        path: its file, for the record.

    Raises:
        UserError: data or model cannot be read, the data lacks the part, the answers do not fit the labels, or
            ``Prompts.render``, ``draw_solved`` or ``answer_log_likelihoods`` raises it.
    """
    parts = config.data.read_parts(config.seed)
    if config.part not in parts:
        raise UserError(f"The data has no {config.part} part; write part: validation, or data.{config.part}.")
    train, evaluated = parts["train"], parts[config.part]
    if config.max_examples is not None:
        evaluated = evaluated.sample(config.max_examples, config.seed)
    answers = config.answers or train.labels
    if len(set(answers)) < len(answers) or len(answers) != len(train.labels) or not all(map(str.strip, answers)):
        raise UserError(
            f"The answers are {', '.join(answers)}, and the labels are {', '.join(train.labels)}; write a different "
            "answer for each label."
        )
    solved = draw_solved(train, config.shots, config.seed)
    prompts = Prompts(config.template, answers, solved)
    texts = [prompts.render(item) for item in evaluated]
    content_free = prompts.render_content_free(evaluated.items[0])
    model, tokenizer = load_language_model(config.model)
    log_likelihoods = answer_log_likelihoods(
        model,
        tokenizer,
        [*texts, *content_free],
        answers,
        max_length=config.max_length,
        too_long=config.too_long,
        batch_size=config.batch_size,
    )
    references = [item.label for item in evaluated]
    metrics: dict[str, Any] = {}
    for kind, scores in answer_scores(log_likelihoods[: len(texts)], answers, log_likelihoods[len(texts) :]).items():
        pair = {"predictions": scores.argmax(axis=1).tolist(), "references": references}
        metrics[kind] = {
            **(Accuracy().compute(**pair) or {}),
            **(ConfusionMatrix().compute(**pair, num_classes=len(answers)) or {}),
        }
    most_frequent = max(map(references.count, set(references))) / len(references)
    facts = run_facts("prompt", path, asdict(config), config.seed)
    del facts["command"]  # that of a training with accelerate
    return {
        **facts,
        "labels": train.labels,
        "answers": list(answers),
        "solved_examples": [{"line": item.line, "label": train.labels[item.label]} for item in solved],
        "first_prompt": texts[0],
        "content_free_prompts": content_free,
        "selection": {"template": config.chosen_on, "answers": config.chosen_on},
        "data": fingerprints({"train": train, config.part: evaluated}),
        "metrics": {config.part: {"examples": len(texts), "most_frequent_label": most_frequent, **metrics}},
    }


def table(results: dict[str, Any]) -> str:
    """Return the accuracies and confusion tables of ``results.json`` as lines of text."""
    ((part, metrics),) = results["metrics"].items()
    lines = [f"{metrics['examples']} examples of {part}; most frequent label: {metrics['most_frequent_label']:.3f}"]
    width = max(10, *(len(label) + 2 for label in results["labels"]))
    for kind in SCORES:
        lines += ["", f"{kind}: accuracy {metrics[kind]['accuracy']:.3f}"]
        lines.append(f"{'correct':{width}}" + "".join(f"{label:>{width}}" for label in results["labels"]))
        for label, row in zip(results["labels"], metrics[kind]["confusion_matrix"], strict=True):
            lines.append(f"{label:{width}}" + "".join(f"{count:>{width}}" for count in row))
    return "\n".join(lines)

"""Zero-shot and few-shot classification: a causal language model scores the answers to a prompt by their likelihood."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from .data.labeled import Labeled, LabeledTexts
from .data.parts import LabeledDataConfig, fingerprints
from .errors import UserError
from .fields import at_least, one_of
from .loading import load_language_model, max_positions
from .metrics import Accuracy, ConfusionMatrix
from .models.cache_recurrent import RecurrentCacheLayer
from .tokenizers import uncovered_characters
from .training.results import run_facts

CONTENT_FREE = ("N/A", "", "[MASK]")  # Zhao et al. 2021, section 4
SCORES = ("likelihood", "normalized", "calibrated")
SEPARATOR = "\n\n"  # between solved examples
# Layers of a cache that a model continues with several tokens at once; linear attention of transformers does not.
_CONTINUED = (DynamicLayer, DynamicSlidingWindowLayer, RecurrentCacheLayer)


@strict
@dataclass
class RationaleConfig:
    """The section ``rationale``: a chain of thought before each answer (Wei et al. 2022)."""

    max_new_tokens: int = at_least(0, 0)  # maximum length of a generated rationale; 0: no rationales
    column: str | None = None  # of the training part, with the rationales of the solved examples
    stop: str = "\nAnswer:"  # text between a rationale and its answer, where generation ends

    def validate_column(self) -> None:
        if self.column is not None and not self.max_new_tokens:
            raise ValueError(
                f"column is {self.column!r}, and max_new_tokens is 0; write how many tokens a generated rationale may "
                "have."
            )

    def validate_stop(self) -> None:
        if not self.stop.strip() or SEPARATOR in self.stop:
            raise ValueError(
                f"stop is {self.stop!r}; write the text between a rationale and its answer, without an empty line."
            )


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
    rationale: RationaleConfig = field(default_factory=RationaleConfig)
    # Part on which template and answers were chosen; null: they were not chosen by scores.
    chosen_on: str | None = one_of(("train", "validation"), None)
    max_length: int | None = at_least(2, None)  # tokens of prompt and answer; null: what the model can read
    too_long: str = one_of(("error", "cut"), "error")  # cut: leave out the first tokens of the prompt
    batch_size: int = at_least(1, 8)
    seed: int = at_least(0, 1)  # of the solved examples, and of the split and the sample of the data

    def validate_model(self) -> None:
        if not self.model:
            raise ValueError("model is empty; write the folder or the Hub id of a causal language model.")

    def validate_rationale(self) -> None:
        if self.shots and self.rationale.max_new_tokens and self.rationale.column is None:
            raise ValueError(
                f"rationale.column is null, and shots is {self.shots}; write the column with the rationales of the "
                "solved examples."
            )

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
        rationale: whether and how a rationale precedes each answer.
    """

    template: str
    answers: Sequence[str]
    solved: Sequence[Labeled] = ()
    rationale: RationaleConfig = field(default_factory=RationaleConfig)

    def render(self, item: Labeled) -> str:
        """Return the prompt for an example: the solved examples and the filled template, separated by empty lines.

        Raises:
            UserError: the template names a column that the data does not have, or is malformed.
        """
        solved = []
        for each in self.solved:
            text = self._fill(each)
            if self.rationale.max_new_tokens:
                text = self.add_rationale(text, _rationale_of(each, self.rationale.column))
            solved.append(f"{text} {self.answers[each.label]}")
        return SEPARATOR.join([*solved, self._fill(item)])

    def add_rationale(self, prompt: str, rationale: str) -> str:
        """Return a prompt with a rationale and the text that precedes the answer."""
        return f"{prompt} {rationale}".rstrip(" ") + self.rationale.stop

    def render_content_free(self, item: Labeled) -> list[str]:
        """Return the prompts without content of Zhao et al. (2021): each column contains N/A, nothing or [MASK]."""
        return [
            self.render(Labeled(word, 0, None, dict.fromkeys(item.fields, word), None if item.pair is None else word))
            for word in CONTENT_FREE
        ]

    def _fill(self, item: Labeled) -> str:
        columns = {**item.fields, "text": item.text} | ({} if item.pair is None else {"pair": item.pair})
        if self.rationale.column is not None:
            columns.pop(self.rationale.column, None)  # the template fills in the evaluated example too
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


def _rationale_of(item: Labeled, column: str | None) -> str:
    if column is None or column not in item.fields:
        known = ", ".join(item.fields) or "none"
        raise UserError(f"rationale.column is {column!r}, and the other columns of the data are {known}.")
    value = item.fields[column]
    return "" if value is None else str(value).strip()


def draw_solved(train: LabeledTexts, number: int, seed: int, rationale: str | None = None) -> list[Labeled]:
    """Draw solved examples from the training part, the classes as equally often as the number allows.

    Args:
        train: the training part.
        number: number of examples.
        seed: random seed; it determines the examples, their order, and the classes that have one more.
        rationale: column of rationales; only examples with text in it are drawn.

    Raises:
        UserError: a class has too few examples, or the data does not have the column.
    """
    random = Random(seed)
    classes = list(range(len(train.labels)))
    random.shuffle(classes)
    wanted = [classes[i % len(classes)] for i in range(number)]
    drawn = []
    for label in classes:
        items = [item for item in train if item.label == label]
        kind = ""
        if rationale is not None:
            items, kind = [item for item in items if _rationale_of(item, rationale)], " with a rationale"
        if len(items) < wanted.count(label):
            raise UserError(
                f"{train.name} has {len(items)} training examples of {train.labels[label]}{kind}, and shots {number} "
                f"needs {wanted.count(label)}; write fewer shots."
            )
        drawn += random.sample(items, wanted.count(label))
    random.shuffle(drawn)
    return drawn


class SharedPrefix:
    """The tokens with which several texts begin. The model reads them once, and each text continues their cache.

    A model reads each text from its start if it has no cache or one that is not made for this (linear attention).

    Args:
        model: a causal language model in evaluation mode.
        texts: token ids of each text.
        longest: maximum length of the prefix.

    Attributes:
        length: number of tokens of the prefix; 0 if texts are read from their start.
    """

    @torch.no_grad()
    def __init__(self, model: PreTrainedModel, texts: Sequence[tuple[int, ...]], longest: int) -> None:
        self.model, self.length = model, 0
        self.cache: Cache | None = None
        first, last = min(texts), max(texts)  # in lexicographic order, so that all texts share what these two share
        differ = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        shared = first[: min(longest, next(differ, len(first)))]
        if shared:
            cache = model(torch.tensor([shared], device=model.device), use_cache=True).get("past_key_values")
            if isinstance(cache, Cache) and all(type(layer) in _CONTINUED for layer in cache.layers):
                self.length, self.cache = len(shared), cache

    def arguments(self, rows: int) -> dict[str, Any]:
        """Return the arguments of a forward pass that continues the prefix in each of ``rows`` rows."""
        if self.cache is None:
            return {"use_cache": False}
        cache = deepcopy(self.cache)  # the model changes it
        cache.reorder_cache(torch.zeros(rows, dtype=torch.long, device=self.model.device))
        return {"use_cache": True, "past_key_values": cache}


def _first_and_most_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> tuple[list[int], int | None]:
    """Return the start token, if the tokenizer has one, and the maximum number of tokens, if there is one."""
    positions = max_positions(model.config)
    if max_length is not None and positions is not None and max_length > positions:
        raise UserError(f"max_length is {max_length}, and the model can read {positions} tokens; write at most that.")
    return [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id], max_length or positions


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def _excess(row: int, length: int, limit: int | None, too_long: str, what: str = "") -> int:
    """Return how many of the first tokens of a prompt are left out, or raise an error if none may be."""
    excess = 0 if limit is None else max(length - limit, 0)
    if excess and too_long == "error":
        raise UserError(
            f"Prompt {row + 1} has {length} tokens{what}, and the maximum is {limit}; write fewer shots, a longer "
            "max_length if the model allows it, or too_long: cut."
        )
    return excess


class Rationale(NamedTuple):
    """A generated rationale, and whether the model ended it with the stop string."""

    text: str
    finished: bool


class _Continuation(StoppingCriteria):
    """Stop when the continuation contains one of several strings.

    ``StopStringCriteria`` of transformers does not support tokenizers with few characters, such as those of a char-RNN.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, ends: Sequence[str]) -> None:
        self.tokenizer, self.length, self.ends = tokenizer, length, ends

    def texts(self, ids: torch.Tensor) -> list[str]:
        """Decode the tokens after the prompt; with it, because some decoders remove the first space of a text."""
        prompts = self.tokenizer.batch_decode(ids[:, : self.length], skip_special_tokens=True)
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [text[len(prompt) :] for prompt, text in zip(prompts, texts, strict=True)]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        ended = [any(end in text for end in self.ends) for text in self.texts(input_ids)]
        return torch.tensor(ended, device=input_ids.device)


@torch.inference_mode()
def generate_rationales(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    stop: str,
    max_new_tokens: int,
    max_length: int | None = None,
    too_long: str = "error",
    batch_size: int = 8,
) -> list[Rationale]:
    """Continue prompts greedily, up to a stop string, an empty line or a number of tokens (Wei et al. 2022, section 2).

    Prompts of the same length are continued together, so there is no padding.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its tokenizer.
        prompts: the texts, which end before a space.
        stop: the stop string, which is not a part of the rationale.
        max_new_tokens: maximum number of tokens of a rationale.
        max_length: maximum number of tokens of start, prompt and rationale; by default, that of the model.
        too_long: "error", or "cut" to leave out the first tokens of the prompt.
        batch_size: number of prompts that are continued together.

    Raises:
        UserError: a prompt is empty or leaves no room for a rationale, or ``max_length`` exceeds that of the model.
    """
    start, limit = _first_and_most_tokens(model, tokenizer, max_length)
    if limit is not None and len(start) + 1 + max_new_tokens > limit:
        raise UserError(
            f"rationale.max_new_tokens is {max_new_tokens}, and the maximum for prompt and rationale is {limit}; write "
            "fewer."
        )
    texts = []
    for row, prompt in enumerate(prompts):
        ids = _encode(tokenizer, prompt)
        length = len(start) + len(ids) + max_new_tokens
        texts.append((*start, *ids[_excess(row, length, limit, too_long, " with its rationale") :]))
        if not texts[-1]:
            raise UserError(f"Prompt {row + 1} is empty; write a template with words of its own.")
    prefix = SharedPrefix(model, texts, longest=min(map(len, texts)) - 1)  # generate() reads a token at least
    ends = (stop, SEPARATOR)
    rationales: dict[int, Rationale] = {}
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    while order:
        length = len(texts[order[0]])
        rows = [row for row in order[:batch_size] if len(texts[row]) == length]
        order = order[len(rows) :]
        inputs = torch.tensor([texts[row] for row in rows], device=model.device)
        continuation = _Continuation(tokenizer, length, ends)
        generated = model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            do_sample=False,
            num_beams=1,
            max_new_tokens=max_new_tokens,
            stopping_criteria=StoppingCriteriaList([continuation]),
            pad_token_id=tokenizer.pad_token_id,
            **(prefix.arguments(len(rows)) | {"use_cache": True}),
        )
        for row, text in zip(rows, continuation.texts(generated), strict=True):
            end = min((place for place in map(text.find, ends) if place >= 0), default=len(text))
            rationales[row] = Rationale(text[:end].strip(), text.startswith(stop, end))
    return [rationales[row] for row in range(len(texts))]


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
    pass, and the tokens with which all prompts begin (instruction and solved examples) are read once. Padding is on the
    right, where a causal model does not see it.

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
    start, limit = _first_and_most_tokens(model, tokenizer, max_length)
    # The sequences that the model reads, each with the answers whose tokens it predicts.
    readers: dict[tuple[int, ...], list[tuple[int, int, list[int]]]] = {}
    for row, prompt in enumerate(prompts):
        length = len(_encode(tokenizer, prompt))
        for column, answer in enumerate(answers):
            ids = _encode(tokenizer, f"{prompt} {answer}")
            target = ids[length:]
            if not length and not start:
                raise UserError(f"Prompt {row + 1} is empty; write a template with words of its own.")
            if not target:
                raise UserError(f"The answer {answer!r} has no token of its own; write another one.")
            # The last token is only predicted, so the model does not read it.
            excess = _excess(row, len(start) + len(ids) - 1, limit, too_long)
            if limit is not None and len(target) + len(start) > limit:
                raise UserError(f"The answer {answer!r} has {len(target)} tokens, and the maximum is {limit}.")
            read = (*start, *ids[excess:-1])
            readers.setdefault(read, []).append((row, column, target))
    scores = np.zeros((len(prompts), len(answers)))
    order = sorted(readers, key=len)
    before = min(len(read) - len(target) for read in order for *_, target in readers[read])
    prefix = SharedPrefix(model, order, longest=before)
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        inputs = pad_sequence([torch.tensor(read[prefix.length :]) for read in batch], batch_first=True)
        mask = pad_sequence([torch.ones(len(read), dtype=torch.long) for read in batch], batch_first=True)
        arguments = prefix.arguments(len(batch))
        logits = model(inputs.to(model.device), attention_mask=mask.to(model.device), **arguments).logits
        for read, scored in zip(batch, logits, strict=True):
            for row, column, target in readers[read]:
                last = len(read) - prefix.length
                predicted = scored[last - len(target) : last].double().log_softmax(-1).cpu()
                scores[row, column] = predicted[range(len(target)), target].sum().item()
    return scores


def _check_characters(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> None:
    """Check that a model knows the characters of all texts that it reads, those of ``CONTENT_FREE`` included.

    Raises:
        UserError: one is not in its vocabulary.
    """
    if missing := uncovered_characters(tokenizer, set(chain.from_iterable(texts))):
        text = next(text for text in texts if missing[0] in text)
        raise UserError(
            f"The model does not know {missing[0]!r}, which is in {text!r}; change the data, the template or the "
            "answers, or train the model with tokenizer.unknown: true."
        )


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
        UserError: data or model cannot be read, the data lacks the part, the answers do not fit the labels, the model
            does not know a character, or ``Prompts.render``, ``draw_solved`` or ``answer_log_likelihoods`` raises it.
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
    solved = draw_solved(train, config.shots, config.seed, config.rationale.column)
    prompts = Prompts(config.template, answers, solved, config.rationale)
    texts = [prompts.render(item) for item in evaluated]
    content_free = prompts.render_content_free(evaluated.items[0])
    model, tokenizer = load_language_model(config.model)
    model.float()  # half precision is several times slower on a CPU
    joints = [" ", config.rationale.stop] if config.rationale.max_new_tokens else [" "]
    _check_characters(tokenizer, [*texts, *content_free, *answers, *joints])
    options: dict[str, Any] = {
        "max_length": config.max_length,
        "too_long": config.too_long,
        "batch_size": config.batch_size,
    }
    rationales: list[Rationale] = []
    if config.rationale.max_new_tokens:
        rationales = generate_rationales(
            model,
            tokenizer,
            [*texts, *content_free],
            stop=config.rationale.stop,
            max_new_tokens=config.rationale.max_new_tokens,
            **options,
        )
        whole = list(map(prompts.add_rationale, [*texts, *content_free], [each.text for each in rationales]))
        texts, content_free = whole[: len(texts)], whole[len(texts) :]
    log_likelihoods = answer_log_likelihoods(model, tokenizer, [*texts, *content_free], answers, **options)
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
        "rationales": [
            {"line": item.line, **each._asdict()} for item, each in zip(evaluated, rationales, strict=False)
        ],
        "selection": {"template": config.chosen_on, "answers": config.chosen_on},
        "data": fingerprints({"train": train, config.part: evaluated}),
        "metrics": {config.part: {"examples": len(texts), "most_frequent_label": most_frequent, **metrics}},
    }


def table(results: dict[str, Any]) -> str:
    """Return the accuracies and confusion tables of ``results.json`` as lines of text."""
    ((part, metrics),) = results["metrics"].items()
    lines = [f"{metrics['examples']} examples of {part}; most frequent label: {metrics['most_frequent_label']:.3f}"]
    if results["rationales"]:
        finished = sum(each["finished"] for each in results["rationales"])
        lines.append(f"{finished} of {len(results['rationales'])} rationales ended with the stop string")
    width = max(10, *(len(label) + 2 for label in results["labels"]))
    for kind in SCORES:
        lines += ["", f"{kind}: accuracy {metrics[kind]['accuracy']:.3f}"]
        lines.append(f"{'correct':{width}}" + "".join(f"{label:>{width}}" for label in results["labels"]))
        for label, row in zip(results["labels"], metrics[kind]["confusion_matrix"], strict=True):
            lines.append(f"{label:{width}}" + "".join(f"{count:>{width}}" for count in row))
    return "\n".join(lines)

"""Predict with a trained model of any task: classes, numbers, tags, answers, choices, translations, captions, texts.

``open_predictor`` loads a model, and ``predictions`` reads any number of inputs in batches of similar length. For the
rows of files see ``predicted_files``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from transformers import (
    BaseImageProcessor,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TokenClassificationPipeline,
)

from .baselines import BaselineClassifier
from .baselines.classifier import SETTINGS
from .data import EncodedQuestions, LabeledTexts, Question, Questions, processed, unlabeled
from .engine import EngineTranslator, check_engine
from .errors import UserError
from .evaluation import (
    ANSWERS,
    Classifier,
    check_averaged,
    class_names,
    has_several_labels,
    is_multiple_choice,
    is_regression,
    mean_probabilities,
    stored_settings,
    stored_thresholds,
    text_logits,
)
from .generation import (
    batches_of_equal,
    encode_prompts,
    encode_sources,
    evaluation_mode,
    length_arguments,
    prompt_fault,
    prompt_length,
    search_arguments,
)
from .loading import ModelLocation, load_any_model, load_image_processor, max_positions, reads_images
from .metrics import label_probabilities
from .retrieval import UNLIMITED
from .sentence_encoders import SentenceEncoder, has_modules, sentence_encoder_of
from .tokenizers import uncovered_characters
from .training.arguments import trains_on_cuda

Input = str | Sequence[str] | Mapping[str, Any]
Fields = Mapping[str, Any]
Predict = Callable[[Sequence[Fields]], list[dict[str, Any]]]
Fault = Callable[[Fields], str | None]

IMAGE = "image"  # name of the part of an input that is an image
CHOICES = "choices"  # name of the part of an input that is a list of texts

_AHEAD = 64  # batches that are sorted by length together
_MASKED = 5  # most probable tokens in the place of a mask


@dataclass(frozen=True)
class PredictOptions:
    """How a model predicts. An option that is not for its task is refused.

    Attributes:
        abstain: whether a classifier gives no class below the threshold that is stored with it; None: if one is.
        hypotheses: number of translations of each text, or of captions of each image, the best first.
        num_beams: number of beams of a model that generates; None selects the default of the model.
        max_new_tokens: longest generated text, in tokens; None selects the default of the model.
        engine: what runs a translator, "torch" or "ctranslate2" (see ``hfattn.engine``).
        quantization: of the engine ctranslate2: "float32" (the default) or "int8".
        together_with: folders or Hub ids of other classifiers of texts with the same classes, whose probabilities are
            averaged with those of the first. The threshold of one of them does not apply to the mean.

    Raises:
        UserError: a number is below 1.
    """

    abstain: bool | None = None
    hypotheses: int = 1
    num_beams: int | None = None
    max_new_tokens: int | None = None
    engine: str = "torch"
    quantization: str | None = None
    together_with: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("hypotheses", "num_beams", "max_new_tokens"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise UserError(f"{name} is {number}; write a whole number of at least 1.")

    def refuse_except(self, name: str, *allowed: str) -> None:
        """Refuse options that are set and not for the task of a model.

        Raises:
            UserError: there is one.
        """
        for option in fields(self):
            if option.name not in allowed and getattr(self, option.name) != option.default:
                known = f"its options are {' and '.join(allowed)}" if allowed else "it has no options"
                raise UserError(f"{option.name} is not for the task of {name}; {known}.")


@dataclass(frozen=True)
class Predictor:
    """A model that is ready to predict.

    Attributes:
        name: folder or Hub id of the model.
        columns: names of the parts of an input.
        required: number of the parts that an input must have; those after them are optional.
        predict: function that predicts for a batch of inputs, each with its parts by name.
        tokenizer: tokenizer of the inputs; None for a baseline.
        options: how it predicts.
        fault: function that says why the model cannot read an input, as the end of a sentence; it returns None if it
            can.
    """

    name: str
    columns: tuple[str, ...]
    required: int
    predict: Predict
    tokenizer: PreTrainedTokenizerBase | None = None
    options: PredictOptions = PredictOptions()
    fault: Fault | None = None

    def parts(self, given: Input, place: str = "The input") -> dict[str, Any]:
        """Return the parts of an input by name.

        Raises:
            UserError: a part is missing, is not a text or, for "choices", several, or has a character that the
                tokenizer does not know; or the model cannot read the input.
        """
        names = " and ".join(self.columns[: self.required])
        if isinstance(given, str):
            given = (given,)
        if not isinstance(given, Mapping):
            if not self.required <= len(given) <= len(self.columns):
                raise UserError(f"{place} has {len(given)} parts, and {self.name} reads {names}; give these.")
            given = dict(zip(self.columns, given, strict=False))
        found = {}
        for i, name in enumerate(self.columns):
            value = given.get(name)
            if value is None and i >= self.required:
                continue
            if name == IMAGE:
                found[name] = _image(value, place)
                continue
            several = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 1
            texts: Any = value if name == CHOICES and several else [value]
            if not all(isinstance(text, str) for text in texts):
                wanted = "texts" if name == CHOICES else "a text"
                said = f"holds {value!r} as {name}" if name in given else f"has no {name}"
                raise UserError(f"{place} {said}; {self.name} reads {names}, so write {wanted} there.")
            if self.tokenizer is not None and (unknown := uncovered_characters(self.tokenizer, "".join(texts))):
                raise UserError(
                    f"{place} has {unknown[0]!r}, which is not in the vocabulary of {self.name}; remove it, or train "
                    "with tokenizer.unknown: true."
                )
            if name == CHOICES and not (several and all(text.strip() for text in texts)):
                raise UserError(
                    f"{place} holds {value!r} as {name}; write at least two texts, none of them empty, as a list or in "
                    "several columns."
                )
            if "question" in self.columns and not str(value).strip():
                raise UserError(f"{place} has an empty {name}; fill it in, or remove the input.")
            found[name] = value
        if self.fault is not None and (fault := self.fault(found)):
            raise UserError(f"{place} {fault}.")
        return found


def open_predictor(name: str, options: PredictOptions | None = None) -> Predictor:
    """Load a model from a folder or the Hub, onto the GPU if there is one.

    Raises:
        UserError: the model cannot be loaded or has no head, or an option is not for its task.
    """
    options = options or PredictOptions()
    return replace(_predictor(name, options), options=options)


def _predictor(name: str, options: PredictOptions) -> Predictor:
    check_engine(options.engine, options.quantization)
    if (Path(name) / SETTINGS).is_file():
        options.refuse_except(name, "abstain")
        baseline = BaselineClassifier.from_pretrained(name)
        return Predictor(name, ("text",), 1, partial(_baseline, baseline, _bound(name, baseline.threshold, options)))
    model, tokenizer, target_tokenizer = load_any_model(name)
    translates = model.can_generate() and model.config.is_encoder_decoder
    if translates and options.engine != "torch":
        options.refuse_except(name, "hypotheses", "num_beams", "max_new_tokens", "engine", "quantization")
        engine = EngineTranslator(name, model, tokenizer, target_tokenizer, options.quantization)
        return Predictor(name, ("text",), 1, partial(_translate_by_engine, engine, options), tokenizer)
    if trains_on_cuda():
        model.to("cuda")
    kind = type(model).__name__
    if translates and reads_images(model):
        options.refuse_except(name, "hypotheses", "num_beams", "max_new_tokens")
        processor = load_image_processor(ModelLocation(name=name))
        return Predictor(name, (IMAGE,), 1, partial(_caption, model, tokenizer, processor, options))
    if translates:
        options.refuse_except(name, "hypotheses", "num_beams", "max_new_tokens")
        translate = partial(_translate, model, tokenizer, target_tokenizer or tokenizer, options)
        return Predictor(name, ("text",), 1, translate, tokenizer)
    if model.can_generate():
        options.refuse_except(name, "num_beams", "max_new_tokens")
        fault = partial(_prompt_fault, model, tokenizer, options)
        return Predictor(name, ("text",), 1, partial(_continue, model, tokenizer, options), tokenizer, fault=fault)
    if "ImageClassification" in kind:
        options.refuse_except(name, "abstain")
        bound = _bound(name, stored_settings(model).get("threshold"), options)
        return Predictor(name, (IMAGE,), 1, partial(_classify_images, model, tokenizer, bound))
    if "SequenceClassification" in kind:
        if is_multiple_choice(model):
            options.refuse_except(name)
            return Predictor(name, ("context", CHOICES), 2, partial(_choose, model, tokenizer), tokenizer)
        options.refuse_except(name, "abstain", "together_with")
        if is_regression(model):
            options.refuse_except(name)
            return Predictor(name, ("text", "pair"), 1, partial(_numbers, model, tokenizer), tokenizer)
        if has_several_labels(model):
            options.refuse_except(name)
            return Predictor(name, ("text", "pair"), 1, partial(_labels, model, tokenizer), tokenizer)
        if options.together_with:
            options.refuse_except(name, "together_with")
            classifiers = [(model, tokenizer), *(load_any_model(other)[:2] for other in options.together_with)]
            check_averaged([name, *options.together_with], [each for each, _ in classifiers])
            for other, _ in classifiers:
                other.to(model.device)
            return Predictor(name, ("text", "pair"), 1, partial(_classify, classifiers, None), tokenizer)
        bound = _bound(name, stored_settings(model).get("threshold"), options)
        return Predictor(name, ("text", "pair"), 1, partial(_classify, [(model, tokenizer)], bound), tokenizer)
    options.refuse_except(name)
    if "TokenClassification" in kind:
        return Predictor(name, ("text",), 1, _tagger(model, tokenizer), tokenizer)
    if "QuestionAnswering" in kind:
        fault, answer = partial(_question_fault, model, tokenizer), partial(_answer, model, tokenizer)
        return Predictor(name, ("question", "context"), 2, answer, tokenizer, fault=fault)
    if has_modules(name):  # before the head: some sentence encoders name that of their pretraining
        encoder = sentence_encoder_of(name, model, tokenizer)
        encoder.model.to(model.device)
        return Predictor(name, ("text",), 1, partial(_embed, encoder), encoder.tokenizer)
    if "MaskedLM" in kind:
        return Predictor(name, ("text",), 1, partial(_fill, model, tokenizer), tokenizer)
    raise UserError(f"{name} is a {kind}, which has no predictions; give a model with a head for its task.")


def _bound(name: str, threshold: float | None, options: PredictOptions) -> float | None:
    """Return the probability below which a classifier abstains; None if it always answers."""
    if options.abstain and threshold is None:
        raise UserError(f"{name} has no threshold; train with evaluation.coverage, or do not ask it to abstain.")
    return None if options.abstain is False else threshold


def predictions(
    predictor: Predictor, inputs: Iterable[Input], batch_size: int = 32, place: str = "Input"
) -> Iterator[dict[str, Any]]:
    """Yield what a model predicts for each input, in their order.

    Inputs are read a few thousand at a time, and those of similar length share a batch, so memory is bounded.

    Args:
        predictor: the model.
        inputs: for each, its text, its texts in the order of ``predictor.columns``, or its parts by name.
        batch_size: inputs in a batch.
        place: what an input is called in messages, with its number, from 1 on.

    Raises:
        UserError: an input lacks a part, or ``batch_size`` is below 1.
    """
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; write a whole number of at least 1.")
    numbered = (predictor.parts(given, f"{place} {number}") for number, given in enumerate(inputs, 1))
    while ahead := list(islice(numbered, batch_size * _AHEAD)):
        order = sorted(range(len(ahead)), key=lambda i: 0 if IMAGE in ahead[i] else len(str(ahead[i])))
        found: dict[int, dict[str, Any]] = {}
        for pairs in (False, True):  # a text alone is not read as a pair with an empty one
            alike = [i for i in order if ("pair" in ahead[i]) == pairs]
            for start in range(0, len(alike), batch_size):
                places = alike[start : start + batch_size]
                found |= zip(places, predictor.predict([ahead[i] for i in places]), strict=True)
        yield from (found[i] for i in range(len(ahead)))


# Classes, numbers and choices


def _labeled(inputs: Sequence[Fields]) -> LabeledTexts:
    return unlabeled([(each["text"], each["pair"]) if "pair" in each else each["text"] for each in inputs])


def _classify(classifiers: Sequence[Classifier], bound: float | None, inputs: Sequence[Fields]) -> list[dict[str, Any]]:
    probabilities = mean_probabilities(classifiers, _labeled(inputs), len(inputs))
    return _classes(probabilities, class_names(classifiers[0][0]), bound)


def _classify_images(
    model: PreTrainedModel, processor: BaseImageProcessor, bound: float | None, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    with torch.inference_mode():
        pixel_values = processed([each[IMAGE] for each in inputs], processor).to(model.device, model.dtype)
        probabilities = model(pixel_values=pixel_values).logits.float().softmax(-1).cpu().numpy()
    return _classes(probabilities, class_names(model), bound)


def _image(value: Any, place: str) -> Any:
    """Return the image that an input names or holds.

    Raises:
        UserError: it is not the path of a file, nor an image.
    """
    if isinstance(value, Mapping):  # of ``datasets.Image``, undecoded
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        if not Path(value).is_file():
            raise UserError(f"{place} names {value!r}, and there is no such file; write the path of an image.")
        return Path(value)
    if value is None:
        raise UserError(f"{place} has no image; write the path of a file.")
    return value


def _baseline(baseline: BaselineClassifier, bound: float | None, inputs: Sequence[Fields]) -> list[dict[str, Any]]:
    return _classes(baseline.predict([each["text"] for each in inputs]), baseline.labels, bound)


def _classes(probabilities: np.ndarray, names: Sequence[str], bound: float | None) -> list[dict[str, Any]]:
    found = []
    for row in probabilities:
        rejected = bound is not None and bool(row.max() < bound)
        found.append(
            {
                "label": None if rejected else names[row.argmax()],
                **({} if bound is None else {"rejected": rejected}),
                "probability": float(row.max()),
                "probabilities": dict(zip(names, map(float, row), strict=True)),
            }
        )
    return found


def _labels(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    names, thresholds = class_names(model), stored_thresholds(model)
    rows = label_probabilities(text_logits(model, tokenizer, _labeled(inputs), len(inputs)).numpy())
    return [
        {
            "labels": [names[i] for i in np.flatnonzero(row >= thresholds)],
            "probabilities": dict(zip(names, map(float, row), strict=True)),
        }
        for row in rows
    ]


def _numbers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    return [{"number": float(row[0])} for row in text_logits(model, tokenizer, _labeled(inputs), len(inputs))]


def _choose(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    pairs = [(each["context"], choice) for each in inputs for choice in each[CHOICES]]
    logits = iter(text_logits(model, tokenizer, unlabeled(pairs), len(pairs))[:, 0].tolist())
    found = []
    for each in inputs:
        scores = torch.tensor([next(logits) for _ in each[CHOICES]]).softmax(0)
        best = int(scores.argmax())
        found.append({"choice": best, "answer": each[CHOICES][best], "probabilities": scores.tolist()})
    return found


# Parts of a text


def _tagger(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Predict:
    limit = min(tokenizer.model_max_length, max_positions(model.config) or tokenizer.model_max_length)
    tokenizer.model_max_length = limit
    # Long texts are read in windows, which only a limit can cause.
    stride = {"stride": limit // 4} if limit < 10**6 else {}
    pipeline = TokenClassificationPipeline(
        model=model, tokenizer=tokenizer, device=model.device, aggregation_strategy="first", **stride
    )

    def predict(inputs: Sequence[Fields]) -> list[dict[str, Any]]:
        return [{"entities": [_entity(each["text"], found) for found in _found(each["text"])]} for each in inputs]

    def _found(text: str) -> list[dict[str, Any]]:
        return pipeline(text) if text.strip() else []

    return predict


def _entity(text: str, found: Mapping[str, Any]) -> dict[str, Any]:
    start, end = int(found["start"]), int(found["end"])
    return {
        "label": found["entity_group"],
        "text": text[start:end],
        "start": start,
        "end": end,
        "probability": float(found["score"]),
    }


def _answering(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return how answers are found, as ``set_answering`` stored it or by the length that the model reads."""
    limit = min(tokenizer.model_max_length, max_positions(model.config) or tokenizer.model_max_length, 384)
    return {"max_length": limit, "overlap": limit // 3, **stored_settings(model, ANSWERS)}


def _question_fault(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, given: Fields) -> str | None:
    asked, context = tokenizer(
        [given["question"].lstrip(), given["context"]], add_special_tokens=False, verbose=False
    ).input_ids
    settings = _answering(model, tokenizer)
    most = settings["max_length"] - tokenizer.num_special_tokens_to_add(pair=True) - settings["overlap"] - 1
    if len(asked) > most:
        return f"has a question of {len(asked)} tokens, and the model reads at most {most}; shorten it"
    return None if context else "has a context without tokens; fill it in, or remove the input"


@torch.inference_mode()
def _answer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    settings = _answering(model, tokenizer)
    asked = [Question(str(i), each["question"], each["context"]) for i, each in enumerate(inputs)]
    encoded = EncodedQuestions(Questions("the input", asked), tokenizer, **settings)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    collate = DataCollatorWithPadding(tokenizer)
    for first in range(0, len(encoded), len(inputs)):
        rows = encoded.rows[first : first + len(inputs)]
        batch = collate([{name: row[name] for name in row if not name.endswith("_positions")} for row in rows])
        outputs = model(**batch.to(model.device))
        starts += list(outputs.start_logits.float().cpu().numpy())
        ends += list(outputs.end_logits.float().cpu().numpy())
    return [
        {"answer": found.text, "start": found.start if found.text else None, "probability": found.probability}
        for found in encoded.answers(starts, ends)
    ]


def _embed(encoder: SentenceEncoder, inputs: Sequence[Fields]) -> list[dict[str, Any]]:
    vectors = encoder.embed([each["text"] for each in inputs], len(inputs))
    return [{"vector": vector} for vector in vectors.tolist()]


@torch.inference_mode()
def _fill(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, inputs: Sequence[Fields]) -> list[dict[str, Any]]:
    mask = tokenizer.mask_token
    without = next((each["text"] for each in inputs if mask not in each["text"]), None)
    if without is not None:
        raise UserError(f"{without!r} has no {mask}; write it in the place of the tokens to predict.")
    limit = min(tokenizer.model_max_length, max_positions(model.config) or tokenizer.model_max_length)
    bounded = {"truncation": True, "max_length": limit} if limit < UNLIMITED else {}
    encoded = tokenizer([each["text"] for each in inputs], padding=True, return_tensors="pt", **bounded)
    for each, ids in zip(inputs, encoded["input_ids"], strict=True):
        if each["text"].count(mask) != (ids == tokenizer.mask_token_id).sum():
            text = shorten(each["text"], 60, placeholder=" …")
            raise UserError(f"{text!r} has a {mask} behind the {limit} tokens that the model reads; shorten it.")
    logits = model(**encoded.to(model.device)).logits.float().softmax(-1).cpu()
    found = []
    for row, ids in zip(logits, encoded["input_ids"].cpu(), strict=True):
        best = row[ids == tokenizer.mask_token_id].topk(_MASKED)
        found.append(
            {
                "masks": [
                    [
                        {"token": tokenizer.decode([token]), "probability": probability}
                        for token, probability in zip(tokens, probabilities, strict=True)
                    ]
                    for tokens, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ]
            }
        )
    return found


# Generated texts


def _translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
    options: PredictOptions,
    inputs: Sequence[Fields],
) -> list[dict[str, Any]]:
    texts = [each["text"] for each in inputs]
    encoded = encode_sources(model, tokenizer, texts)
    return _ranked(_written(model, target_tokenizer, options, encoded))


def _caption(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    processor: BaseImageProcessor,
    options: PredictOptions,
    inputs: Sequence[Fields],
) -> list[dict[str, Any]]:
    pixel_values = processed([each[IMAGE] for each in inputs], processor).to(model.device, model.dtype)
    return _ranked(_written(model, tokenizer, options, {"pixel_values": pixel_values}), "caption")


def _written(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    options: PredictOptions,
    encoded: Mapping[str, torch.Tensor],
) -> list[list[tuple[str, float]]]:
    """Return the texts that an encoder-decoder writes for each input, with their scores, the best first."""
    ids = _generated(model, encoded, options)
    scores = sequence_scores(model, encoded, ids)
    best = list(zip(tokenizer.batch_decode(ids, skip_special_tokens=True), scores.tolist(), strict=True))
    return [best[i : i + options.hypotheses] for i in range(0, len(best), options.hypotheses)]


def _translate_by_engine(
    engine: EngineTranslator, options: PredictOptions, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    texts = [each["text"] for each in inputs]
    return _ranked(engine.translate(texts, options.num_beams, options.max_new_tokens, options.hypotheses))


def _ranked(found: Sequence[Sequence[tuple[str, float]]], name: str = "translation") -> list[dict[str, Any]]:
    """Return the predictions of models that write: for each input its texts with their scores, the best first."""
    groups = [[{name: text, "score": score} for text, score in group] for group in found]
    return [group[0] if len(group) == 1 else {**group[0], "hypotheses": group} for group in groups]


@torch.inference_mode()
def sequence_scores(model: PreTrainedModel, source: Mapping[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """Return the log-probability log p(y | x) of each target, the sum over its tokens and its end token, in nats.

    Args:
        model: an encoder-decoder in evaluation mode.
        source: ``input_ids`` and ``attention_mask`` (B, S), or ``pixel_values`` (B, channels, height, width).
        ids: (B n, T) n targets for each source, which begin with the start token; what follows the first end token
            does not count.

    Returns:
        (B n,), in float32.
    """
    count = len(ids) // len(next(iter(source.values())))
    repeated = {name: tensor.repeat_interleave(count, dim=0) for name, tensor in source.items()}
    logits = model(**repeated, decoder_input_ids=ids[:, :-1]).logits.float()
    targets = ids[:, 1:]
    scores = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    end = model.generation_config.eos_token_id
    ends = torch.tensor([] if end is None else end, device=ids.device).reshape(-1)
    ended = torch.isin(targets, ends)
    return scores.masked_fill(ended.cumsum(1) - ended.long() > 0, 0.0).sum(1)


def _continue(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: PredictOptions, inputs: Sequence[Fields]
) -> list[dict[str, Any]]:
    texts = [each["text"] for each in inputs]
    lengths = [prompt_length(model, tokenizer, text) for text in texts]
    rooms = [length_arguments(model, options.max_new_tokens, length).get("max_new_tokens") for length in lengths]
    pads = tokenizer.pad_token is not None
    # A ``max_length`` that the model stores counts the padding too, and not every tokenizer can pad.
    alike = [room if pads and room is not None else length for room, length in zip(rooms, lengths, strict=True)]
    found: dict[int, str] = {}
    for places in batches_of_equal(alike, len(texts)):
        padding: dict[str, Any] = {"padding": True, "padding_side": "left"} if pads else {}
        encoded = encode_prompts(model, tokenizer, [texts[i] for i in places], **padding)
        ids = _generated(model, encoded, options)[:, encoded["input_ids"].shape[1] :]
        found |= zip(places, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
    return [{"continuation": found[i]} for i in range(len(texts))]


def _prompt_fault(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: PredictOptions, given: Fields
) -> str | None:
    length, longest = prompt_length(model, tokenizer, given["text"]), model.generation_config.max_length
    if fault := prompt_fault(model, length):
        return fault
    if not length_arguments(model, options.max_new_tokens) and length >= longest:
        return f"has {length} tokens, and the model ends a text after {longest}; shorten it, or give max_new_tokens"
    return None


def _generated(model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], options: PredictOptions) -> torch.Tensor:
    """Return the ids that a model generates, without drawing at random."""
    read = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
    given = search_arguments(model, options.num_beams, options.max_new_tokens, options.hypotheses, read)
    with evaluation_mode(model), torch.inference_mode():
        return model.generate(**inputs, **given)


__all__ = [
    "PredictOptions",
    "Predictor",
    "open_predictor",
    "predictions",
    "sequence_scores",
]

"""Captioners: hard attention beside soft attention, and the gate and the doubly stochastic term."""

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hfattn import ShowAttendTellConfig, ShowAttendTellForConditionalGeneration
from hfattn.data import CaptionCollator, EncodedCaptions, make_processor
from hfattn.data.scenes import Scenes, digit_things
from hfattn.generation import evaluation_mode
from hfattn.metrics import decode_generated
from hfattn.reports.image_captioning import attention_scores
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

from .claim import Claim, Measurement, Panel, Statement
from .images import as_input
from .tasks import train, warm_up_and_decay

SIDE, TRAINED, TESTED, BATCH, RATE, WARM_UP = 48, 12_000, 500, 64, 2e-3, 50
RECOGNITION = 800  # steps in which the CNN learns which digits are in a scene
STEPS = {2: 800, 4: 1200}  # by the number of digits in a scene
GRADIENTS = 32  # of one batch of validation scenes, to measure the noise of the sampled attention
LEARNED = 0.5  # nats per word of validation scenes


class Data(NamedTuple):
    """Scenes as pixels (N, 48, 48) from 0 to 255 and labels (N, T) of training and of validation, and test scenes."""

    pixels: torch.Tensor
    labels: torch.Tensor
    validation_pixels: torch.Tensor
    validation_labels: torch.Tensor
    test: EncodedCaptions
    tokenizer: PreTrainedTokenizerBase


@lru_cache(maxsize=1)
def scenes(digits: int, seed: int, data: Path) -> Data:
    drawn = Scenes(digit_things(str(data / "mnist"), "en"), [digits], SIDE, (0.7, 1.0), "black", "en", "digit_scenes")
    parts = {"train": TRAINED, "validation": TESTED, "test": TESTED}
    images = {part: drawn.draw(part, number, seed) for part, number in parts.items()}
    texts = [item.text for item in images["train"]]
    tokenizer = build_tokenizer(TokenizerConfig(kind="word", vocab_size=100), texts, ends=True)
    processor = make_processor((SIDE, SIDE), [0.5] * 3, [0.5] * 3)
    pixels, labels = {}, {}
    for part in ("train", "validation"):
        pixels[part] = torch.from_numpy(np.stack([np.asarray(item.image) for item in images[part]]))
        ids = [torch.tensor(tokenizer(item.text).input_ids) for item in images[part]]
        labels[part] = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
    test = EncodedCaptions(images["test"], tokenizer, processor, 14)
    return Data(pixels["train"], labels["train"], pixels["validation"], labels["validation"], test, tokenizer)


@lru_cache(maxsize=1)
def recognizer(digits: int, seed: int, data: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a CNN that has learned which words are in the captions of scenes, but not where.

    The logit of a word is the largest one of all annotations, so each digit is recognized at its place.
    """
    found = scenes(digits, seed, data)
    torch.manual_seed(seed)
    encoder = captioner(found.tokenizer).get_encoder()
    output = torch.nn.Linear(encoder.config.annotation_size, len(found.tokenizer))
    present = torch.zeros(len(found.labels), len(found.tokenizer))
    present.scatter_(1, found.labels.clamp(min=0), 1.0)
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> torch.Tensor:
        batch = torch.randint(len(present), (BATCH,), generator=generator)
        annotations = encoder(pixel_values=as_input(found.pixels[batch])).last_hidden_state
        logits = output(annotations).amax(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, present[batch])

    parameters = [*encoder.parameters(), *output.parameters()]
    train(parameters, loss, RECOGNITION, RATE, warm_up_and_decay(WARM_UP, RECOGNITION), torch.optim.AdamW)
    return encoder.state_dict()


def captioner(tokenizer: PreTrainedTokenizerBase, **fields: Any) -> ShowAttendTellForConditionalGeneration:
    """Return an untrained captioner with a CNN and 6 × 6 annotations."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    config = ShowAttendTellConfig(
        vocab_size=len(tokenizer),
        embedding_size=32,
        hidden_size=64,
        annotation_size=64,
        channels=[16, 32],
        attention_score_options={"hidden_size": 32},
        decoder_start_token_id=tokenizer.bos_token_id,
        **{name: getattr(tokenizer, name) for name in names},
        **{"doubly_stochastic": 0, **fields},
    )
    model = ShowAttendTellForConditionalGeneration(config)
    model.generation_config.max_new_tokens = 14
    return model


def gradient_noise(model: ShowAttendTellForConditionalGeneration, found: Data) -> float:
    """Return the noise of the gradient of the weights of the attention score that its samples cause.

    It is the root of the summed variances of the gradient's elements, relative to the length of the mean gradient, of
    ``GRADIENTS`` gradients of the same batch; 0 if nothing is sampled.
    """
    weights = [weight for name, weight in model.named_parameters() if ".attention.score." in name]
    baseline = None if model.baseline is None else model.baseline.clone()
    pixel_values, labels = as_input(found.validation_pixels[:BATCH]), found.validation_labels[:BATCH]
    gradients = []
    for _ in range(GRADIENTS):
        loss = model(pixel_values=pixel_values, labels=labels).loss
        gradients.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, weights)]))
    if baseline is not None:
        assert model.baseline is not None
        model.baseline.copy_(baseline)
    stacked = torch.stack(gradients).double()
    return math.sqrt(stacked.var(0).sum()) / float(stacked.mean(0).norm())


def fitted(digits: int, fields: Mapping[str, Any], seed: int, data: Path) -> Measurement:
    """Train a captioner on scenes of a number of digits, and measure its captions of test scenes."""
    found, steps = scenes(digits, seed, data), STEPS[digits]
    torch.manual_seed(seed)
    model = captioner(found.tokenizer, **fields)
    model.get_encoder().load_state_dict(recognizer(digits, seed, data))
    generator, curve, noise = torch.Generator().manual_seed(seed), [], 0.0

    def loss(step: int) -> torch.Tensor:
        nonlocal noise
        if step % 100 == 1:
            curve.append((float(step - 1), validation_loss(model, found)))
        if step == steps // 2:
            noise = gradient_noise(model, found)
        batch = torch.randint(len(found.labels), (BATCH,), generator=generator)
        value: torch.Tensor = model(pixel_values=as_input(found.pixels[batch]), labels=found.labels[batch]).loss
        return value

    train(list(model.parameters()), loss, steps, RATE, warm_up_and_decay(WARM_UP, steps), torch.optim.AdamW)
    curve.append((float(steps), validation_loss(model, found)))
    captions = []
    with evaluation_mode(model), torch.inference_mode():
        for start in range(0, TESTED, 100):
            batch = CaptionCollator()([found.test[i] for i in range(start, start + 100)])
            ids = model.generate(pixel_values=batch["pixel_values"], num_beams=1)
            captions += decode_generated(found.tokenizer, ids.numpy())
    right = [item.text == caption for item, caption in zip(found.test.images, captions, strict=True)]
    looks = attention_scores(model, found.tokenizer, found.test, 100)
    values = {
        "exact match": sum(right) / len(right),
        "pointing": looks["pointing"],
        "mass on the object": looks["mass"],
        "nats per word of validation": curve[-1][1],
        "noise of the gradient": noise,
        f"steps to {LEARNED} nats": next((step for step, nats in curve if nats <= LEARNED), float(steps)),
    }
    return Measurement(values, {"loss": curve}, steps)


@torch.inference_mode()
def validation_loss(model: ShowAttendTellForConditionalGeneration, found: Data) -> float:
    with evaluation_mode(model):
        outputs = model(pixel_values=as_input(found.validation_pixels), labels=found.validation_labels)
    logits, labels = outputs.logits.flatten(0, 1), found.validation_labels.flatten()
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100).item()


def _hard(estimator: str, **fields: Any) -> dict[str, Any]:
    return {"attention_distribution": "hard", "attention_distribution_options": {"estimator": estimator}, **fields}


ATTENTION = {
    "soft": {},
    "straight-through": _hard("straight_through"),
    "REINFORCE": _hard("score_function"),
    "REINFORCE, no baseline": _hard("score_function", baseline_decay=1.0),
}


def _terms(digits: int, gate: str, weight: int) -> str:
    return f"{digits} digits, {gate}, λ = {weight}"


TERMS: dict[str, tuple[int, dict[str, Any]]] = {
    _terms(digits, gate, weight): (
        digits,
        {"attention_gate": "scalar" if gate == "gate" else "none", "doubly_stochastic": weight},
    )
    for digits in (2, 4)
    for gate in ("gate", "no gate")
    for weight in (0, 1)
}


def measure_attention(variant: str, seed: int, data: Path) -> Measurement:
    return fitted(2, ATTENTION[variant], seed, data)


def measure_terms(variant: str, seed: int, data: Path) -> Measurement:
    digits, fields = TERMS[variant]
    found = fitted(digits, fields, seed, data)
    del found.values["noise of the gradient"]  # soft attention draws no samples
    return found


_SETTING = (
    f"Scenes of {SIDE} × {SIDE} pixels with digits of MNIST, those of the test in no other scene, and captions such as "
    f'"a seven above a three"; {TRAINED:,} scenes to train on, {TESTED} each for validation and test. '
    f"`show_attend_tell` with 6 × 6 annotations of width 64 and an LSTM of 64, batches of {BATCH}, AdamW at {RATE:g} "
    f"with a linear warm-up of {WARM_UP} steps and a linear decay. The CNN first learns for {RECOGNITION} steps which "
    "words the captions have, from the largest logit of its annotations, and is then trained along. The setting was "
    "chosen on validation digits and another seed. *Exact match*: of greedy "
    "captions. *Pointing*: share of the digits whose word has its largest weight at a cell with a pixel of the digit. "
)

HARD = Claim(
    "Hard attention is as good as soft attention, and harder to train",
    "Xu et al. 2015, sections 4.1 and 5.3, table 1",
    _SETTING + f"{STEPS[2]:,} steps on scenes of two digits. REINFORCE has the paper's entropy term and reads half of "
    "the images with the expected attention; in evaluation, hard attention takes the largest weight. *Noise of the "
    f"gradient*: of the weights of the score, over {GRADIENTS} samples of the attention for one batch halfway through "
    "training, relative to the mean gradient. "
    f"*Steps to {LEARNED} nats*: per word of validation scenes, measured every 100 steps. The paper's "
    "data are photographs with captions by people, and its scores are BLEU and METEOR.",
    tuple(ATTENTION),
    measure_attention,
    (
        Statement("exact match", "REINFORCE", "not below", "soft", tolerance=0.02),
        Statement("exact match", "straight-through", "not below", "soft", tolerance=0.02),
        Statement("pointing", "REINFORCE", "not below", "soft", tolerance=0.02),
        Statement("noise of the gradient", "REINFORCE, no baseline", "above", "REINFORCE"),
        Statement(f"steps to {LEARNED} nats", "REINFORCE", "above", "soft"),
        Statement(f"steps to {LEARNED} nats", "REINFORCE, no baseline", "above", "REINFORCE"),
    ),
    (Panel("loss", "step", "nats per word of validation"),),
)


TERM = Claim(
    "The gate and the doubly stochastic term help soft attention to caption",
    "Xu et al. 2015, section 4.2.1",
    _SETTING + f"{STEPS[2]:,} steps on scenes of two digits, and {STEPS[4]:,} on scenes of four. λ = 1 is the weight "
    "of the doubly stochastic term in the authors' code. The paper reports that the term improved BLEU and that the "
    "gate made the words look at objects, without numbers.",
    tuple(TERMS),
    measure_terms,
    tuple(
        Statement(value, _terms(digits, *left), "above", _terms(digits, *right))
        for digits in (2, 4)
        for value in ("exact match", "pointing")
        for left, right in ((("gate", 0), ("no gate", 0)), (("gate", 1), ("gate", 0)))
    ),
    (Panel("loss", "step", "nats per word of validation"),),
)

CLAIMS = {"hard_attention": HARD, "doubly_stochastic": TERM}

"""Train encoder-decoders: evaluation by likelihood and by generation, scheduled sampling, and a sampled softmax."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn.functional import linear
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from ..data import EncodedPairs, MixedExamples
from ..errors import UserError
from ..fields import number, one_of, share
from ..loading import BaseModel
from ..metrics import token_loss, token_statistics
from .config import build_section
from .fine_tuning import FineTuningTrainer
from .trainer import ReliableTrainer


@strict
@dataclass
class SamplingSchedule:
    """Decay of ε_i, the probability that the decoder reads the reference (Bengio et al. 2015, section 2.4).

    i is the number of updates so far.

    - ``linear``: ε_i = max(ε, k - c · i), where the slope c is required, the offset k is 1 by default, and the minimum
      ε is 0;
    - ``exponential``: ε_i = k^i, with k < 1;
    - ``inverse_sigmoid``: ε_i = k / (k + exp(i / k)), with k >= 1.

    Args:
        name: one of these names.
        k, c, epsilon: the constants of its formula.

    Raises:
        ValueError: a constant is missing, out of range, or not in the formula.
    """

    name: str | None = one_of(("linear", "exponential", "inverse_sigmoid"), None)
    k: float | int | None = number(None, above=0)
    c: float | int | None = number(None, above=0)
    epsilon: float | int | None = share(None)

    def validate_constants(self) -> None:
        if self.name is None:
            raise ValueError("name is missing; write linear, exponential or inverse_sigmoid.")
        if self.name == "linear":
            if self.c is None:
                raise ValueError("linear needs c, the decrease in each update; write a number such as 0.001.")
            if self.k is not None and self.k > 1:
                raise ValueError(f"k is {self.k}, the first probability of linear; write a number of at most 1.")
            return
        for field in ("c", "epsilon"):
            if getattr(self, field) is not None:
                raise ValueError(f"{field} is for linear, and name is {self.name}; remove it.")
        if self.name == "exponential" and not (self.k is not None and self.k < 1):
            raise ValueError(f"k is {self.k}; exponential needs a number below 1, such as 0.999.")
        if self.name == "inverse_sigmoid" and not (self.k is not None and self.k >= 1):
            raise ValueError(f"k is {self.k}; inverse_sigmoid needs a number of at least 1, such as 1000.")

    def probability(self, updates: int) -> float:
        """Return ε_i after a number of updates."""
        k = 1.0 if self.k is None else self.k
        if self.name == "linear":
            return max(self.epsilon or 0.0, k - (self.c or 0.0) * updates)
        if self.name == "exponential":
            return k**updates
        decayed = k * math.exp(-updates / k)  # exp(i / k) would overflow
        return decayed / (decayed + 1)


@dataclass
class Seq2SeqArguments(Seq2SeqTrainingArguments):
    """``Seq2SeqTrainingArguments`` with two more ways to train a decoder.

    Args:
        scheduled_sampling: replace inputs of the decoder by predictions of the model, drawn from its distribution
            (Bengio et al. 2015): the probability of replacing an input, or the fields of a ``SamplingSchedule``, with
            which it increases during training; None or 0 is no replacement.
        sampled_softmax: number of tokens in the softmax of the training loss: the targets of the batch, and others
            drawn at random (Jean et al. 2015, section 3.2); None is the whole vocabulary.

    Raises:
        ValueError: one of them is out of range.
    """

    scheduled_sampling: float | dict[str, Any] | None = None
    sampled_softmax: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.scheduled_sampling
        if isinstance(given, dict):
            build_section(SamplingSchedule, given, "training.scheduled_sampling.")
        elif given is not None and not (type(given) in (int, float) and 0 <= given <= 1):
            raise ValueError(
                f"scheduled_sampling is {given!r}; write a probability from 0 to 1, or a schedule such as "
                "{name: linear, c: 0.001}."
            )
        if self.sampled_softmax is not None and (type(self.sampled_softmax) is not int or self.sampled_softmax < 2):
            raise ValueError(
                f"sampled_softmax is {self.sampled_softmax}; write a number of tokens of at least 2, or null."
            )

    def replaced_share(self, updates: int) -> float:
        """Return the probability of replacing an input of the decoder, 1 - ε_i, after a number of updates."""
        given = self.scheduled_sampling
        return 1 - SamplingSchedule(**given).probability(updates) if isinstance(given, dict) else given or 0.0


class ReliableSeq2SeqTrainer(ReliableTrainer, Seq2SeqTrainer):
    """A reliable ``Seq2SeqTrainer`` that evaluates likelihood and generation in one pass.

    The predictions of an evaluation are the ids predicted by teacher forcing (B, T), the negative log-likelihoods of
    the targets (B, T) in nats and, with ``predict_with_generate``, the generated ids (B, T'); ``Seq2SeqTrainer`` has
    only one of the two. With several processes, each pair is counted once.

    Raises:
        UserError: ``sampled_softmax`` is larger than the vocabulary, or scheduled sampling is combined with FSDP or
            DeepSpeed.
    """

    args: Seq2SeqArguments

    def __init__(self, *args: Any, optimizer_cls_and_kwargs: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs  # Seq2SeqTrainer does not take this argument
        if self.args.scheduled_sampling and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise UserError(
                "training.scheduled_sampling needs the whole model in each process; leave it out with FSDP and "
                "DeepSpeed."
            )
        number, vocab_size = self.args.sampled_softmax, self.model.config.vocab_size
        if number is not None:
            if number > vocab_size:
                raise UserError(
                    f"training.sampled_softmax is {number}, and the vocabulary has {vocab_size} tokens; write fewer, "
                    "or null."
                )
            # The model's own loss is over its whole vocabulary.
            self.compute_loss_func = partial(token_loss, label_smoothing=self.args.label_smoothing_factor)

    def why_not_chunked(self) -> str | None:
        return super().why_not_chunked() if self.args.sampled_softmax is None else "the softmax is sampled"

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        replaced = self.args.replaced_share(self.state.global_step)
        if replaced > 0:
            inputs = {**inputs, "decoder_input_ids": self._mix_predictions(inputs, replaced)}
        if self.args.sampled_softmax is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        whole: Any = self.accelerator.unwrap_model(model)
        tokens, labels = sample_tokens(inputs["labels"], whole.config.vocab_size, self.args.sampled_softmax)
        with logits_of(tokens, whole.get_output_embeddings()):
            return super().compute_loss(model, {**inputs, "labels": labels}, return_outputs, num_items_in_batch)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if self.args.scheduled_sampling and "learning_rate" in logs:  # of the last update
            logs["scheduled_sampling"] = self.args.replaced_share(self.state.global_step - 1)
        super().log(logs, *args, **kwargs)

    def _mix_predictions(self, inputs: dict[str, Any], probability: float) -> torch.Tensor:
        """Return decoder inputs (B, T), each replaced with this probability.

        The new token is drawn from the model's prediction for its position.

        No gradient passes through a drawn token, so the steps that draw need no graph; the model is then trained on the
        mixed inputs as usual.
        """
        model: Any = self.accelerator.unwrap_model(self.model)
        ids, mask = inputs["decoder_input_ids"], inputs.get("decoder_attention_mask")
        mixed, cache = [ids[:, :1]], None
        model.eval()  # in training mode, gradient checkpointing would disable the cache
        with torch.no_grad(), self.accelerator.autocast():
            source = {"attention_mask": inputs["attention_mask"]}
            source["encoder_outputs"] = model.get_encoder()(inputs["input_ids"], **source, return_dict=True)
            for t in range(1, ids.shape[1]):
                outputs = model(
                    **source,
                    decoder_input_ids=mixed[-1],
                    decoder_attention_mask=None if mask is None else mask[:, :t],
                    past_key_values=cache,
                    use_cache=True,
                )
                cache = outputs.past_key_values
                drawn = torch.multinomial(outputs.logits[:, -1].float().softmax(-1), num_samples=1)
                replaced = torch.rand(drawn.shape, device=drawn.device) < probability
                mixed.append(torch.where(replaced, drawn, ids[:, t : t + 1]))
        model.train()
        return torch.cat(mixed, dim=1)

    def generation_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return what ``generate`` reads of a batch."""
        return {name: inputs[name] for name in ("input_ids", "attention_mask")}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        # Seq2SeqTrainer would also gather the rows that pad the last batch of several processes.
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        loss, outputs, labels = Trainer.prediction_step(self, model, inputs, prediction_loss_only, ignore_keys)
        if prediction_loss_only:
            return loss, None, None
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        predictions: tuple[torch.Tensor, ...] = token_statistics(logits, labels)
        if self.args.predict_with_generate:
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad():
                # With FSDP, each step needs all processes, even those whose rows are finished.
                synced = self.is_fsdp_enabled or None
                options = kwargs or self._gen_kwargs
                generated = self.model.generate(**self.generation_inputs(inputs), **options, synced_gpus=synced)
            predictions = (*predictions, generated)
        return loss, predictions, labels


class FineTuningSeq2SeqTrainer(FineTuningTrainer, ReliableSeq2SeqTrainer):
    """A ``ReliableSeq2SeqTrainer`` for a model prepared by ``tuned``.

    The loss of a pretrained model is ``token_loss``: its own does not count the labels of all batches of a step.
    """

    def __init__(self, *args: Any, source: BaseModel | None, **kwargs: Any) -> None:
        super().__init__(*args, source=source, **kwargs)
        if source is not None:
            self.compute_loss_func = partial(token_loss, label_smoothing=self.args.label_smoothing_factor)


def check_padding(
    model: PreTrainedModel,
    pairs: EncodedPairs | MixedExamples,
    collate: Callable[[list[dict[str, Any]]], Any],
    tolerance: float = 1e-3,
) -> None:
    """Check that the predictions of a model for a pair do not depend on the padding beside it.

    The pair with the shortest source is read alone, and in a batch with the longest source and the same target. A model
    that does not mask padding may learn to ignore it, so its scores alone do not show the mistake.

    Args:
        model: an encoder-decoder. A copy of it, with noise added to its weights, reads the pairs: with initial weights,
            the embedding of padding and the biases are often zeros, so that padding would have no effect.
        pairs: pairs with sources of several lengths.
        collate: returns a padded batch.
        tolerance: largest difference of two logits, as a share of the largest logit.

    Raises:
        UserError: the predictions differ.
    """
    lengths = pairs.lengths[:, 0]
    shortest, longest = int(lengths.argmin()), int(lengths.argmax())
    noisy = deepcopy(model).eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for parameter in noisy.parameters():
            parameter.add_(torch.randn(parameter.shape).to(parameter), alpha=0.1)
        short = pairs[shortest]
        long = {**pairs[longest], "labels": short["labels"]}  # padding of the target is hidden by the loss
        alone, padded = (
            noisy(**collate([dict(row) for row in rows]).to(model.device)).logits[0]
            for rows in ([short], [short, long])
        )
    difference = (padded - alone).abs().max() / alone.abs().max()
    if difference > tolerance:
        raise UserError(
            f"The predictions for a text change by {difference:.2g} of the largest logit if its source is padded; mask "
            "the padding in the encoder, the attention and the score of the model."
        )


def sample_tokens(labels: torch.Tensor, vocab_size: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the tokens of a sampled softmax.

    The tokens other than the targets are drawn uniformly, so the proposal's correction cancels (Jean et al. 2015,
    section 3.2).

    Args:
        labels: (B, T) ids of the targets, -100 where no loss is wanted.
        vocab_size: size of the vocabulary.
        number: number of tokens, or the number of distinct targets if that is larger.

    Returns:
        The ids of the tokens, and the labels (B, T) as positions among them.
    """
    priority = torch.rand(vocab_size, device=labels.device)
    targets = labels[labels != -100].unique()
    priority[targets] = 2  # the highest value, so that all targets are selected
    tokens = priority.topk(max(number, len(targets))).indices
    position = torch.empty(vocab_size, dtype=torch.long, device=labels.device)
    position[tokens] = torch.arange(len(tokens), device=labels.device)
    return tokens, torch.where(labels == -100, labels, position[labels.clamp(min=0)])


@contextmanager
def logits_of(tokens: torch.Tensor, head: nn.Module) -> Iterator[None]:
    """Make an output layer compute only the logits of some tokens."""
    whole = head.forward

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        if type(head) is not nn.Linear:  # an adapter contributes to every logit
            return whole(hidden)[..., tokens]
        return linear(hidden, head.weight[tokens], None if head.bias is None else head.bias[tokens])

    head.forward = forward
    try:
        yield
    finally:
        del head.forward

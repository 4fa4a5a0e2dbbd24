"""Train encoder-decoders: evaluation by likelihood and by generation, scheduled sampling, and a sampled softmax."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from ..errors import UserError
from ..metrics import token_loss, token_statistics
from .trainer import ReliableTrainer


@dataclass
class Seq2SeqArguments(Seq2SeqTrainingArguments):
    """``Seq2SeqTrainingArguments`` with two more ways to train a decoder.

    Args:
        scheduled_sampling: probability of replacing an input of the decoder by a prediction of the model, drawn from
            its distribution (Bengio et al. 2015, section 2.4, with a constant probability).
        sampled_softmax: number of tokens in the softmax of the training loss: the targets of the batch, and others
            drawn at random (Jean et al. 2015, section 3.2); None is the whole vocabulary.

    Raises:
        ValueError: one of them is out of range.
    """

    scheduled_sampling: float = 0.0
    sampled_softmax: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.scheduled_sampling <= 1:
            raise ValueError(f"scheduled_sampling is {self.scheduled_sampling}; write a probability from 0 to 1.")
        if self.sampled_softmax is not None and (type(self.sampled_softmax) is not int or self.sampled_softmax < 2):
            raise ValueError(
                f"sampled_softmax is {self.sampled_softmax}; write a number of tokens of at least 2, or null."
            )


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
        if self.args.scheduled_sampling > 0 and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
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

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self.args.scheduled_sampling > 0:
            inputs = {**inputs, "decoder_input_ids": self._mix_predictions(inputs)}
        if self.args.sampled_softmax is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        whole: Any = self.accelerator.unwrap_model(model)
        tokens, labels = sample_tokens(inputs["labels"], whole.config.vocab_size, self.args.sampled_softmax)
        with logits_of(tokens, whole.get_output_embeddings()):
            return super().compute_loss(model, {**inputs, "labels": labels}, return_outputs, num_items_in_batch)

    def _mix_predictions(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return decoder inputs (B, T), each replaced by a sampled token with a fixed probability.

        The probability is ``scheduled_sampling``, and the token is drawn from the model's prediction for its position.

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
                replaced = torch.rand(drawn.shape, device=drawn.device) < self.args.scheduled_sampling
                mixed.append(torch.where(replaced, drawn, ids[:, t : t + 1]))
        model.train()
        return torch.cat(mixed, dim=1)

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
            source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            with torch.no_grad():
                # With FSDP, each step needs all processes, even those whose rows are finished.
                synced = self.is_fsdp_enabled or None
                generated = self.model.generate(**source, **(kwargs or self._gen_kwargs), synced_gpus=synced)
            predictions = (*predictions, generated)
        return loss, predictions, labels


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

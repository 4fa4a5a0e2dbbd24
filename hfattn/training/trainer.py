"""``Trainer`` with the guarantees that a long run needs, and its stateful variant for recurrent models."""

import json
import re
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import (
    Seq2SeqTrainer,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput

from ..errors import NonFiniteError
from ..metrics import token_statistics
from ..models.cache_recurrent import RecurrentCache


def last_complete_checkpoint(directory: str | Path) -> Path | None:
    """The latest checkpoint in a folder that was written to its end, or None.

    ``trainer_state.json`` is the last file of a checkpoint: without it, or with half of it, the process was killed
    while it saved, and the checkpoint before is the one to continue from.
    """
    numbered = []
    for path in Path(directory).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if match := re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", path.name):
            numbered.append((int(match[1]), path))
    for _, path in sorted(numbered, reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            continue
        return path
    return None


class _Epochs(TrainerCallback):
    """Tells the trainer when a pass over the data begins, and which one it is."""

    def __init__(self, trainer: "ReliableTrainer") -> None:
        self.trainer = trainer

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.begin_epoch(int(state.epoch or 0))


class Stopwatch(TrainerCallback, ExportableState):
    """Seconds of training, those before a checkpoint that the run was resumed from included."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.before = seconds
        self.started: float | None = None

    @property
    def seconds(self) -> float:
        return self.before + (0 if self.started is None else time.perf_counter() - self.started)

    def state(self) -> dict[str, Any]:
        return {"args": {"seconds": self.seconds}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.started = time.perf_counter()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.before, self.started = self.seconds, None


class ReliableTrainer(Trainer):
    """A ``Trainer`` that can be killed at any moment, and that stops when its numbers are no longer numbers.

    - A run that is resumed from ``last_complete_checkpoint`` ends with the weights of one that never stopped, wherever
      it was killed: also after its last step.
    - The data set's own ``sampler(seed)`` gives the order of the training data.
    - A loss or a weight that is not finite raises ``NonFiniteError``, which names the step; no checkpoint is written
      from then on, so the last one is good.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sampler: Any = None
        self.add_callback(_Epochs(self))
        self.add_callback(Stopwatch())

    @property
    def training_seconds(self) -> float:
        """Seconds that ``train`` has taken, over all the processes that this run was resumed in."""
        return next(c.seconds for c in self.callback_handler.callbacks if isinstance(c, Stopwatch))

    def train(self, resume_from_checkpoint: str | None = None, **kwargs: Any) -> Any:
        if resume_from_checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / "trainer_state.json"))
            if self._has_ended(state):
                return self._reload(resume_from_checkpoint, state)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _has_ended(self, state: TrainerState) -> bool:
        """Whether training was over at a checkpoint: Trainer, resumed there, would take a step before it notices."""
        stopped_early = (
            state.global_step < state.max_steps
            and state.stateful_callbacks["TrainerControl"]["args"]["should_training_stop"]
        )
        return stopped_early or 0 < self.args.max_steps <= state.global_step

    def _reload(self, checkpoint: str, state: TrainerState) -> TrainOutput:
        self.state = state
        best = state.best_model_checkpoint
        # The path is as it was when it was saved; a folder that was moved since has its last checkpoint at least.
        self._load_from_checkpoint(best if best and Path(best).is_dir() else checkpoint)
        watch = next(c for c in self.callback_handler.callbacks if isinstance(c, Stopwatch))
        watch.before = state.stateful_callbacks["Stopwatch"]["args"]["seconds"]
        return TrainOutput(state.global_step, float("nan"), {})

    def begin_epoch(self, epoch: int) -> None:
        """Called before each pass over the training data, also when it is resumed in the middle."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        self._sampler = (train_dataset or self.train_dataset).sampler(seed)
        return self._sampler

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise self._not_finite(f"The loss is {loss.item()}", self.state.global_step + 1)
        return loss

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._check_weights()
        return super().evaluation_loop(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._check_weights()
        super()._save_checkpoint(*args, **kwargs)

    def _check_weights(self) -> None:
        for name, parameter in self.model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise self._not_finite(f"The weights {name} are not finite", self.state.global_step)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # Trainer writes trainer_state.json next: by then every process must have written its part.
        self.accelerator.wait_for_everyone()

    def _not_finite(self, what: str, step: int) -> NonFiniteError:
        self.callback_handler.on_train_end(self.args, self.state, self.control)  # closes the progress bar and the logs
        checkpoint = last_complete_checkpoint(self.args.output_dir)
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"
        return NonFiniteError(f"{what} at step {step}; {kept}: lower training.learning_rate or training.max_grad_norm.")


class ReliableSeq2SeqTrainer(ReliableTrainer, Seq2SeqTrainer):
    """A ``Seq2SeqTrainer`` that is reliable, and that scores a batch once, in both ways.

    The predictions of an evaluation are the ids predicted with the target before them given (B, T), their negative
    log-likelihoods (B, T) in nats and, with ``predict_with_generate``, the generated ids (B, T'); ``Seq2SeqTrainer``
    has either the one or the other. Several processes count each pair once.
    """

    def __init__(self, *args: Any, optimizer_cls_and_kwargs: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs  # an argument of Trainer that Seq2SeqTrainer has not

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        # Seq2SeqTrainer would also gather the rows that fill up the last batch of several processes.
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Any = None, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        loss, outputs, labels = Trainer.prediction_step(self, model, inputs, prediction_loss_only, ignore_keys)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        predictions: tuple[torch.Tensor, ...] = token_statistics(logits, labels)
        if self.args.predict_with_generate:
            inputs = self._prepare_inputs(inputs)
            source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            with torch.no_grad():
                generated = self.model.generate(**source, **(kwargs or self._gen_kwargs))
            predictions = (*predictions, generated)
        return loss, predictions, labels


class StatefulTrainer(ReliableTrainer):
    """Truncated backpropagation through time: the hidden state is carried from batch to batch and detached.

    For data sets (``hfattn.data.Streams``) in which row b of a batch continues row b of the batch before. The state is
    zero at the beginning of each pass; each process carries that of its own rows; it is carried through every
    micro-batch of an accumulated step; evaluation carries its own; and a checkpoint holds it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._training_state: RecurrentCache | None = None
        self._evaluation_state: RecurrentCache | None = None

    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        self._training_state = None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._evaluation_state = None
        return super().evaluation_loop(*args, **kwargs)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        state = self._training_state if model.training else self._evaluation_state
        inputs = {**inputs, "past_key_values": state, "use_cache": True}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        state = outputs.past_key_values.detach()
        if model.training:
            self._training_state = state
        else:
            self._evaluation_state = state
        return (loss, outputs) if return_outputs else loss

    def _state_file(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"recurrent_state_{self.args.process_index}.safetensors"

    def _save_rng_state(self, output_dir: str) -> None:
        # At the end of a pass there is nothing to carry on.
        if self._training_state is not None and self.state.epoch != int(self.state.epoch):
            tensors = {
                f"{i}.{j}": tensor.contiguous()
                for i, layer in enumerate(self._training_state.layers)
                for j, tensor in enumerate(layer.state)
            }
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            steps = {"steps": str(self._training_state.get_seq_length())}
            save_file(tensors, self._state_file(output_dir), metadata=steps)
        super()._save_rng_state(output_dir)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is None or not self._state_file(checkpoint).exists():
            return
        cache = RecurrentCache(self.model.config.num_hidden_layers)
        with safe_open(self._state_file(checkpoint), "pt", device=str(self.args.device)) as file:
            names = sorted(file.keys())
            for i in range(len(cache)):
                state = tuple(file.get_tensor(name) for name in names if name.startswith(f"{i}."))
                cache.update_state(state, i, int(file.metadata()["steps"]))
        self._training_state = cache

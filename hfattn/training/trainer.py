"""A ``Trainer`` that resumes exactly and stops on non-finite values, and a variant that carries recurrent state."""

import importlib
import json
import re
import shutil
import sys
import time
import zipfile
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil  # a dependency of Accelerate
import torch
from accelerate.utils import parse_flag_from_env
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Subset
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.cache_utils import Cache, DynamicLayer
from transformers.trainer_callback import ExportableState, PrinterCallback, ProgressCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput
from transformers.utils import SAFE_WEIGHTS_NAME

from ..data import (
    EncodedPairs,
    EncodedTexts,
    PermutationSampler,
    TokenBatches,
    WindowedTexts,
    order_by_length,
    padding_share,
)
from ..errors import NonFiniteError, UserError
from ..files import writing
from ..metrics.language_model import IGNORED, following_tokens, preceding_tokens, token_loss
from ..models.fast_generation import unhooked
from ..models.penalties import penalized
from ..models.strict_config import unknown_message
from .arguments import trains_on_cuda
from .averaging import MovingAverage, mean_weights
from .chunked_loss import has_plain_logits, nats_for_logits
from .matrix_products import onednn_products, uses_onednn
from .progress import Interruption, ProgressLines
from .schedules import ScheduleConfig, make_scheduler
from .stored_states import ReadTextsOnce, forget_states, frozen_encoder
from .training_config import AveragingConfig

T = TypeVar("T", bound=TrainerCallback)
# Types of models whose logits are what their output layer returns. That of a bilm is called for both directions.
_WITH_PLAIN_LOGITS = ("bahdanau", "bilm", "char_rnn", "vaswani")


def complete_checkpoints(directory: str | Path) -> list[Path]:
    """Return the complete checkpoints in a folder, the latest last.

    ``trainer_state.json`` is written last. If it is missing or truncated, the process was killed while it saved the
    checkpoint. If weights or states are truncated, the disk was full, or the machine lost power.
    """
    return [path for path in _checkpoints(directory) if _is_complete(path)]


def _checkpoints(directory: str | Path) -> list[Path]:
    numbered = []
    for path in Path(directory).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if match := re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)", path.name):
            numbered.append((int(match[1]), path))
    return [path for _, path in sorted(numbered)]


def _is_complete(checkpoint: Path) -> bool:
    """Return whether a checkpoint was saved to its end, by the lengths of its files of tensors, which are not read."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text())
        for path in checkpoint.iterdir():
            if path.suffix == ".safetensors":
                with safe_open(path, "pt"):
                    pass
            elif path.suffix in (".bin", ".pt", ".pth") and not zipfile.is_zipfile(path):  # its index is at its end
                return False
    except (FileNotFoundError, ValueError, SafetensorError):
        return False
    return True


def _set_aside(checkpoint: Path) -> None:
    """Rename a checkpoint that is not complete. Trainer would keep it as the latest one, and delete those before it."""
    aside = checkpoint.with_name(f"damaged-{checkpoint.name}")
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)
    print(f"{checkpoint} is damaged; it is kept as {aside.name}.", file=sys.stderr, flush=True)


def last_complete_checkpoint(directory: str | Path) -> Path | None:
    """Return the latest complete checkpoint in a folder, or None."""
    complete = complete_checkpoints(directory)
    return complete[-1] if complete else None


def _peak_memory() -> int:
    """Return the peak memory of this process in bytes: GPU memory if it uses a GPU, else main memory."""
    if trains_on_cuda():
        return torch.cuda.max_memory_allocated()
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    resource = importlib.import_module("resource")  # not available on Windows
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _select(arrays: Any, rows: np.ndarray) -> Any:
    """Return rows of an array, or of each array in a tuple; None if there are no arrays."""
    if isinstance(arrays, tuple):
        return tuple(_select(array, rows) for array in arrays)
    return None if arrays is None else arrays[rows]


class _Epochs(TrainerCallback):
    """Callback that passes the epoch number to the trainer when an epoch begins."""

    def __init__(self, trainer: "ReliableTrainer") -> None:
        self.trainer = trainer

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.begin_epoch(int(state.epoch or 0))


class Stopwatch(TrainerCallback, ExportableState):
    """Measure the seconds of training, including those before the checkpoint that a run was resumed from."""

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


class MatrixProducts(TrainerCallback, ExportableState):
    """Choose the library when training begins. A run that is resumed has the choice of its checkpoint.

    After training, also one that failed, ``restore`` has to be called.
    """

    def __init__(self, onednn: bool) -> None:
        self.onednn = onednn
        self.stack = ExitStack()

    def state(self) -> dict[str, Any]:
        return {"args": {"onednn": self.onednn}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.onednn:
            self.stack.enter_context(onednn_products())

    def restore(self) -> None:
        """Return to the library of before."""
        self.stack.close()


class ReliableTrainer(Trainer):
    """A ``Trainer`` that stops on NaN or infinity, and can be resumed exactly after it was killed at any moment.

    - A run that is resumed from ``last_complete_checkpoint`` ends with the weights of an uninterrupted run, no matter
      when it was killed, even after its last step.
    - The training dataset's ``sampler(seed)`` determines the order of examples. With ``max_tokens``, ``TokenBatches``
      determines it from the dataset's ``lengths``. The dataset's ``set_epoch`` is called before each epoch.
    - With ``max_tokens``, texts of a classifier and pairs of a translator are evaluated in the order of their lengths,
      so that these batches have little padding too. The predictions are in the order of the dataset.
    - A non-finite loss or weight raises ``NonFiniteError``, which names the step. No checkpoint is written after that,
      so the last one is finite.
    - Train before you evaluate: if several processes evaluate a model first, Accelerate (1.15) prepares it without
      gradient synchronization and does not change this for training. If you need an evaluation before training,
      compute it without the trainer.
    - If enabled, an exponential moving average replaces the weights in evaluation, in the choice of the best
      checkpoint, in the saved weights and in the final model. A checkpoint also contains the raw weights.
    - The hidden states of a frozen encoder (``contextual``) are computed once for each training text
      (``ReadTextsOnce``).
    - The loss of translators and language models is computed in chunks of positions where ``why_not_chunked`` names no
      reason against it. The outputs of a training step then have no logits.

    Args:
        schedule: the section ``schedule``; without ``name``, the training arguments define the learning rate.
        averaging: the section ``averaging``.
        max_tokens: maximum number of tokens, including padding, in a batch of one process; for an encoder-decoder,
            source and target are counted separately. If None, batches have the number of examples set in the training
            arguments.
        matmul: "on", "off", or "auto": whether oneDNN computes the products of float32 matrices on a CPU
            (``matrix_products``). A run that is resumed has the choice of its checkpoint.
        early_stopping_patience: number of evaluations without improvement after which training stops; by default,
            training does not stop early.

    Attributes:
        chunked_loss: whether the loss may be computed in chunks; False turns that off.

    Raises:
        UserError: averaging is combined with sharded weights, or sharding is requested on a CPU or for an
            encoder-decoder with shared embeddings.
    """

    chunked_loss = True

    def __init__(
        self,
        *args: Any,
        schedule: ScheduleConfig | None = None,
        averaging: AveragingConfig | None = None,
        max_tokens: int | None = None,
        matmul: str = "off",
        early_stopping_patience: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.schedule = schedule or ScheduleConfig()
        self.averaging = averaging or AveragingConfig()
        self.max_tokens = max_tokens
        self._sampler: Any = None
        self._plain_logits: bool | None = None  # not tried yet
        self._average: MovingAverage | None = None
        self.add_callback(_Epochs(self))
        self.add_callback(Stopwatch())
        self.add_callback(MatrixProducts(uses_onednn(matmul)))
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)
        self.add_callback(ProgressLines(bar=not self.args.disable_tqdm))
        self.add_callback(Interruption())
        if frozen_encoder(self.model) is not None:
            self.add_callback(ReadTextsOnce(self))
        if early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(early_stopping_patience))
        if self.averaging != AveragingConfig() and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise UserError(
                "The section averaging needs all weights in each process; remove it with FSDP and DeepSpeed."
            )
        if self.averaging.ema is not None:
            self._average = MovingAverage(self.model, self.averaging.ema)
            self.add_callback(self._average)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if parse_flag_from_env("ACCELERATE_USE_FSDP") and not self.is_fsdp_enabled:
            raise UserError(
                "Accelerate shards weights only on accelerators; on a CPU, launch with recipes/accelerate/ddp.yaml."
            )
        # FSDP keeps the input embedding and the output layer tied, but no other weights.
        if self.is_fsdp_enabled and any(".layers." in name for name in self.model.all_tied_weights_keys):
            raise UserError(
                "Accelerate cannot shard layers that share weights; write another share in "
                "model.encoder_pattern_options, or launch with recipes/accelerate/ddp.yaml."
            )
        if self.is_fsdp_enabled and self.model.config.is_encoder_decoder and self.model.all_tied_weights_keys:
            raise UserError(
                "Accelerate cannot shard an encoder-decoder with shared embeddings or positions; write "
                "model.share_embeddings: false and model.tie_word_embeddings: false, leave model.share_positions out, "
                "or launch with recipes/accelerate/ddp.yaml."
            )

    def mean_over_step(
        self, total: torch.Tensor, examples: int | torch.Tensor, num_items_in_batch: Any
    ) -> torch.Tensor:
        """Return what a batch contributes to the mean loss over all examples of an optimizer step.

        Args:
            total: sum of the losses in the batch.
            examples: number of examples in the batch.
            num_items_in_batch: number of examples in all batches of the step on all devices; None: those of this batch.
        """
        if num_items_in_batch is None:
            return total / examples
        # Gradients are averaged over devices.
        devices = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
        return total / num_items_in_batch * devices

    @property
    def training_seconds(self) -> float:
        """Seconds spent in ``train``, including those before the run was resumed."""
        return self._callback(Stopwatch).seconds

    def _callback(self, kind: type[T]) -> T:
        return next(each for each in self.callback_handler.callbacks if isinstance(each, kind))

    @property
    def padding_share(self) -> float:
        """Share of padding in the training batches, measured on the first epoch (exact with ``max_tokens``)."""
        if self.max_tokens is not None:
            return self._token_batches(self.max_tokens).padding_share
        order = iter(self.train_dataset.sampler(self._data_seed))
        batches = iter(lambda: list(islice(order, self.args.train_batch_size)), [])
        return padding_share(self.train_dataset.lengths, batches)

    @property
    def checkpoint_choice(self) -> dict[str, str] | None:
        """Part and metric by which the checkpoint was chosen; None if the weights are those of the last steps."""
        if self.averaging.last or not self.args.load_best_model_at_end:
            return None
        return {"part": "validation", "metric": self.args.metric_for_best_model or "loss"}

    def training_facts(self, unit: str, number: float) -> dict[str, Any]:
        """Return the steps, duration, precision and memory of a finished training run for ``results.json``.

        Args:
            unit: plural name of a training example, such as "windows".
            number: number of training examples.
        """
        return {
            "steps": self.state.global_step,
            "epochs": self.state.epoch,
            # Averaged checkpoints have no single step number.
            "best_step": None if self.averaging.last else self.state.best_global_step,
            "wall_time_seconds": round(self.training_seconds, 2),  # includes evaluations and checkpoints
            "matmul": "on" if self._callback(MatrixProducts).onednn else "off",
            "precision": "bfloat16" if self.args.bf16 else "float16" if self.args.fp16 else "float32",
            f"{unit}_per_second": round(number / self.training_seconds),
            "peak_memory_bytes": _peak_memory(),
        }

    def whole_model(self) -> PreTrainedModel:
        """Return the unsharded model in evaluation mode. The main process can save and use it without the others.

        All processes must call this method: with FSDP, each holds a part of the weights, and the main process gets a
        full copy.
        """
        if not self.is_fsdp_enabled:
            return self.model.eval()
        weights = self.accelerator.get_state_dict(self.model)
        if not self.is_world_process_zero():
            return self.model
        # FSDP changes the class of the sharded model; this copy is not sharded.
        model = type(self.model)(self.model.config)
        model.load_state_dict(weights)
        if model.can_generate():
            model.generation_config = self.model.generation_config
        return model.to(self.args.device).eval()

    def save_whole(self, model: PreTrainedModel, folder: Path) -> None:
        """Save what ``whole_model`` returned."""
        model.save_pretrained(folder)

    def train_or_resume(self, resume: bool) -> TrainOutput:
        """Train; with ``resume``, continue from the last complete checkpoint if there is one.

        Checkpoints that are not complete are renamed to ``damaged-checkpoint-...``.

        Raises:
            KeyboardInterrupt: the user pressed Ctrl-C; a checkpoint of the last step is saved (``Interruption``).
        """
        complete = complete_checkpoints(self.args.output_dir) if resume else []
        checkpoint = complete[-1] if complete else None
        if self.is_world_process_zero():
            for other in _checkpoints(self.args.output_dir) if resume else []:
                if other not in complete:
                    _set_aside(other)
            begin = f"Resuming from {checkpoint}" if checkpoint else "Training"
            print(
                f"{begin}: {type(self.accelerator.unwrap_model(self.model)).__name__}, "
                f"{self.model.num_parameters():,} parameters, {len(self.train_dataset):,} training examples, on "
                f"{self.args.device}",
                flush=True,
            )
        return self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def finish(self) -> None:
        """Close the trackers after a barrier, so that no process exits early and terminates the others."""
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()

    def train(self, resume_from_checkpoint: str | None = None, **kwargs: Any) -> Any:
        output = self._train(resume_from_checkpoint, **kwargs)
        self.remove_callback(EarlyStoppingCallback)  # it must not react to the final evaluations
        if self.averaging.last is not None:
            self.accelerator.wait_for_everyone()  # the last checkpoint must be complete
            checkpoints = complete_checkpoints(self.args.output_dir)[-self.averaging.last :]
            if not checkpoints:
                raise UserError(
                    f"averaging.last {self.averaging.last} averages checkpoints, and {self.args.output_dir} has none; "
                    "write a smaller training.save_steps, or training.save_strategy: epoch."
                )
            self.model.load_state_dict(mean_weights(checkpoints), strict=False)  # tied weights are saved once
        return output

    def _train(self, resume_from_checkpoint: str | None, **kwargs: Any) -> Any:
        if resume_from_checkpoint is not None:
            self._check_model(Path(resume_from_checkpoint))
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / "trainer_state.json"))
            if self._has_ended(state):
                return self._reload(resume_from_checkpoint, state)
            if self.args.save_only_model:
                raise UserError(
                    f"{resume_from_checkpoint} has only the model (training.save_only_model), so the training "
                    "cannot be resumed exactly; train again in another folder with --output_dir."
                )
        try:
            output = super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
        except KeyboardInterrupt:
            self._close()
            raise
        finally:
            forget_states(self.model)
            self._callback(MatrixProducts).restore()
        best_is_loaded = self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None
        if self._average is not None and not best_is_loaded:
            self._average.apply()
        return output

    def _check_model(self, checkpoint: Path) -> None:
        """Make sure that a checkpoint belongs to this model: Trainer would leave missing weights at random values."""
        file = checkpoint / SAFE_WEIGHTS_NAME
        if not file.exists():  # a sharded checkpoint
            return
        own = {name: list(tensor.shape) for name, tensor in self.model.state_dict().items()}
        with safe_open(file, "pt") as weights:
            names = weights.keys()
            saved = {name: weights.get_slice(name).get_shape() for name in names}
        tied = set(self.model.all_tied_weights_keys)
        differing = [name for name in own.keys() | saved.keys() if own.get(name) != saved.get(name)]
        for name in sorted(set(differing) - (tied - saved.keys())):
            raise UserError(
                f"{checkpoint} has another model: its {name} is {saved.get(name, 'absent')}, and this model's is "
                f"{own.get(name, 'absent')}; resume with the model that it was saved from, or choose another folder."
            )

    def _has_ended(self, state: TrainerState) -> bool:
        """Return whether training was over at a checkpoint. Trainer would take one more step before it notices."""
        stopped_early = (
            state.global_step < state.max_steps
            and state.stateful_callbacks["TrainerControl"]["args"]["should_training_stop"]
        )
        return stopped_early or 0 < self.args.max_steps <= state.global_step

    def _reload(self, checkpoint: str, state: TrainerState) -> TrainOutput:
        self.state = state
        # The folder may have been moved since the checkpoint was saved. Trainer sets the path of the best checkpoint
        # again when it saves.
        best = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        self._load_from_checkpoint(str(best) if self.args.load_best_model_at_end and best.is_dir() else checkpoint)
        self._callback(Stopwatch).before = state.stateful_callbacks["Stopwatch"]["args"]["seconds"]
        if products := state.stateful_callbacks.get("MatrixProducts"):  # earlier versions saved none
            self._callback(MatrixProducts).onednn = products["args"]["onednn"]
        return TrainOutput(state.global_step, float("nan"), {})

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Suppress the warning: only tied weights, which are saved once, can be missing here (``_check_model``)."""

    def begin_epoch(self, epoch: int) -> None:
        """Pass the epoch number to the dataset and the sampler, even if a run is resumed in the middle of an epoch."""
        self.train_dataset.set_epoch(epoch)
        if isinstance(self._sampler, PermutationSampler | TokenBatches):
            self._sampler.set_epoch(epoch)

    @property
    def _data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        self._sampler = (train_dataset or self.train_dataset).sampler(self._data_seed)
        return self._sampler

    def _token_batches(self, max_tokens: int) -> TokenBatches:
        return TokenBatches(self.train_dataset.lengths, max_tokens, self._data_seed, self.args.world_size)

    def get_train_dataloader(self) -> DataLoader:
        if self.max_tokens is None:
            return super().get_train_dataloader()
        self._sampler = self._token_batches(self.max_tokens)
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=self._sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return self.accelerator.prepare(loader)

    lr_scheduler: Any

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        if self.schedule.name is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        width = self.accelerator.unwrap_model(self.model).config.hidden_size
        optimizer = self.optimizer if optimizer is None else optimizer
        self.lr_scheduler = make_scheduler(self.schedule, optimizer, self.args, num_training_steps, width)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the averaged weights, if training with a moving average."""
        return nullcontext() if self._average is None or not self.is_in_train else self._average.applied()

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        with self._averaged():
            return super().evaluate(*args, **kwargs)

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        name = self.args.metric_for_best_model
        if name is not None and f"eval_{name.removeprefix('eval_')}" not in metrics:
            known = sorted(metric.removeprefix("eval_") for metric in metrics)
            raise UserError(f"training.metric_for_best_model: {unknown_message(name, known, 'a score of this recipe')}")
        return super()._determine_best_metric(metrics, trial)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise self._not_finite(f"The loss is {loss.item()}", self.state.global_step + 1)
        return loss

    def _evaluation_order(self, dataset: Any) -> np.ndarray | None:
        """Return the order (n,) of an evaluation, the shortest first; None: that of the dataset."""
        whole = dataset.dataset if isinstance(dataset, Subset) else dataset
        # The scores of other examples may need the order of the dataset, as those of windows of a context do.
        if self.max_tokens is None or not isinstance(whole, EncodedPairs | EncodedTexts | WindowedTexts):
            return None
        lengths = whole.lengths if whole is dataset else whole.lengths[list(dataset.indices)]
        return order_by_length(lengths)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        order = self._evaluation_order(eval_dataset)
        return super()._get_eval_sampler(eval_dataset) if order is None else order.tolist()

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> Any:
        self._check_weights()
        output = super().evaluation_loop(dataloader, *args, **kwargs)
        order = self._evaluation_order(dataloader.dataset)
        if order is None:
            return output
        rows = np.argsort(order)
        return output._replace(predictions=_select(output.predictions, rows), label_ids=_select(output.label_ids, rows))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._check_weights()
        folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        try:
            with writing(folder, f"{self._kept()}: free some space and continue with --resume"), self._averaged():
                super()._save_checkpoint(*args, **kwargs)
        except UserError:
            shutil.rmtree(folder, ignore_errors=True)  # a partly deleted checkpoint is recognized as incomplete
            self._close()
            raise

    def _check_weights(self) -> None:
        for name, parameter in self.model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise self._not_finite(f"The weights {name} are not finite", self.state.global_step)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self._average is not None and checkpoint is not None:
            self._average.resume(checkpoint)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._average is not None and self.args.should_save:
            self._average.save_raw(output_dir)
        # Trainer writes trainer_state.json next; every process must have written its part by then.
        self.accelerator.wait_for_everyone()

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the loss, in chunks if possible, and add the penalties of the model if it does not do so itself."""
        is_chunked = model.training and self.why_not_chunked() is None
        compute = self._loss_in_chunks if is_chunked else partial(super().compute_loss, return_outputs=True)
        loss, outputs = compute(model, inputs, num_items_in_batch=num_items_in_batch)
        if is_chunked or self.compute_loss_func is not None or self.label_smoother is not None:
            # Trainer divides the mean over a batch by the number of accumulated batches, but not a share of the step.
            batches = 1 if num_items_in_batch is None else self.args.gradient_accumulation_steps
            loss = penalized(model, loss, 1 / batches)
        return (loss, outputs) if return_outputs else loss

    def why_not_chunked(self) -> str | None:
        """Return why the loss of training is not computed in chunks (``summed_nats``), in a few words, or None."""
        model, arguments = self.model, self.args
        if not self.chunked_loss:
            return "chunked_loss is False"
        if arguments.device.type != "cpu":
            return "training is not on a CPU"
        if arguments.torch_compile or model._compiled_call_impl is not None:  # by model.compile()
            return "the model is compiled"
        if self.is_deepspeed_enabled:
            return "the weights are sharded"
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        if type(head) is not nn.Linear or "forward" in vars(head) or not unhooked(head):
            return "the model has no output layer over a vocabulary, or one that was replaced or has hooks"
        if self._smoothing() is None:
            return "the loss is another one than cross-entropy of labels"
        if self._plain_logits is None:
            self._plain_logits = model.config.model_type in _WITH_PLAIN_LOGITS or has_plain_logits(model)
        return None if self._plain_logits else "the logits are not what the output layer returns"

    def _smoothing(self) -> float | None:
        """Return the label smoothing of a loss that is the cross-entropy of labels aligned with logits, or None."""
        given = self.compute_loss_func
        if given is None:
            own = self.model.config.is_encoder_decoder and self.model.config.model_type in _WITH_PLAIN_LOGITS
            return float(self.args.label_smoothing_factor) if own else None
        function, options = (given.func, given.keywords) if isinstance(given, partial) else (given, {})
        return float(options.get("label_smoothing", 0.0)) if function is token_loss else None

    def _loss_in_chunks(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> tuple[torch.Tensor, Any]:
        inputs = {"use_cache": False, **inputs}
        labels = inputs.pop("labels")
        if self.model.config.is_encoder_decoder and "decoder_input_ids" not in inputs:
            inputs["decoder_input_ids"] = self.model.prepare_decoder_input_ids_from_labels(labels)
        read = inputs.get("decoder_input_ids", inputs["input_ids"])
        targets = [following_tokens(labels, read.shape[1])]  # as in ``token_loss``
        if self.model.config.model_type == "bilm":
            targets.append(preceding_tokens(labels, read.shape[1]))
        head = self.model.get_output_embeddings()
        with nats_for_logits(head, *targets, label_smoothing=self._smoothing() or 0.0):
            outputs = model(**inputs)
        nats = outputs["logits"] + outputs.get("backward_logits", 0)
        return self.mean_over_step(nats, targets[0].ne(IGNORED).sum(), num_items_in_batch), outputs

    def _not_finite(self, what: str, step: int) -> NonFiniteError:
        self._close()
        return NonFiniteError(
            f"{what} at step {step}; {self._kept()}: lower training.learning_rate or training.max_grad_norm."
        )

    def _close(self) -> None:
        """Close the progress bar and the logs before an error message is printed."""
        self.callback_handler.on_train_end(self.args, self.state, self.control)

    def _kept(self) -> str:
        checkpoint = last_complete_checkpoint(self.args.output_dir)
        return f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"


class StatefulTrainer(ReliableTrainer):
    """Truncated backpropagation through time: the state of the model is carried from batch to batch and detached.

    The state is the cache of the model, which must not grow: that of a recurrent model, or of a Transformer with the
    pattern "memory" or others whose cache has a fixed size.

    This trainer is for datasets (``hfattn.data.Streams``) in which row b of a batch continues row b of the previous
    batch. The state is zero at the start of each epoch. Each process carries the state of its own rows, through every
    micro-batch of an accumulated step. Evaluation has a separate state. Checkpoints include the state.

    Raises:
        UserError: one process trains on several GPUs, or the cache of the model grows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.args.n_gpu > 1:
            raise UserError(
                "Stateful training needs one process per GPU; launch it with accelerate launch --multi_gpu."
            )
        self._training_state: Cache | None = None
        self._evaluation_state: Cache | None = None
        if any(isinstance(layer, DynamicLayer) and not layer.is_sliding for layer in self.model.empty_cache().layers):
            raise UserError(
                "Stateful training carries a state that does not grow, and layers that see all keys have none; write "
                "decoder_pattern: memory for all layers."
            )

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
        state = outputs.past_key_values
        if state is None:
            raise UserError(
                "The model returns no state in training, which data.stateful carries to the next window; leave out "
                "training.gradient_checkpointing and model.reversible."
            )
        for layer in state.layers:
            layer.detach()
        if model.training:
            self._training_state = state
        else:
            self._evaluation_state = state
        return (loss, outputs) if return_outputs else loss

    def _state_file(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"recurrent_state_{self.args.process_index}.safetensors"

    def _save_rng_state(self, output_dir: str) -> None:
        # The state is discarded at the end of an epoch.
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
        cache = self.model.empty_cache()
        with safe_open(self._state_file(checkpoint), "pt", device=str(self.args.device)) as file:
            names = sorted(file.keys())
            for i, layer in enumerate(cache.layers):
                state = tuple(file.get_tensor(name) for name in names if name.startswith(f"{i}."))
                layer.restore(state, int(file.metadata()["steps"]))
        self._training_state = cache

"""Callbacks that show the progress of a training, and stop it when the user interrupts it."""

import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

# An empty file in a checkpoint that was saved because of Ctrl-C. The next regular checkpoint replaces it, so that an
# average of the last checkpoints is that of an uninterrupted run.
_MARK = "interrupted"


def say(text: str) -> None:
    """Print a text above the progress bars, at once even if the output goes to a file."""
    tqdm.write(text)
    sys.stdout.flush()


class ProgressLines(ProgressCallback):
    """Print one line for each log and each evaluation, beside the progress bar of ``Trainer``.

    ::

        step 20/60  loss 3.43  rate 2.3e-03  0:24 left
        step 20/60  validation: loss 2.54, exact_match 0.113

    Args:
        bar: whether to show progress bars too, if standard error is a terminal.
    """

    def __init__(self, bar: bool) -> None:
        super().__init__()
        self.bar = bar and sys.stderr.isatty()
        self.started, self.first_step = time.perf_counter(), 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.started, self.first_step, self.current_step = time.perf_counter(), state.global_step, 0
        if state.is_world_process_zero:
            self.training_bar = tqdm(total=state.max_steps, dynamic_ncols=True, disable=not self.bar)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.bar:
            super().on_prediction_step(args, state, control, **kwargs)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero or self.training_bar is None or logs is None:
            return
        where = f"step {state.global_step}/{state.max_steps}"
        if "loss" in logs:
            rate = f"  rate {logs['learning_rate']:.1e}" if "learning_rate" in logs else ""
            say(f"{where}  loss {logs['loss']:.4g}{rate}  {self._left(state)} left")
        elif any(name.startswith("eval_") for name in logs):
            say(f"{where}  validation: {_scores(args, logs)}")

    def _left(self, state: TrainerState) -> str:
        done = max(state.global_step - self.first_step, 1)
        seconds = (time.perf_counter() - self.started) / done * (state.max_steps - state.global_step)
        return tqdm.format_interval(seconds)


def _scores(args: TrainingArguments, logs: Mapping[str, Any]) -> str:
    """Return the loss and the score by which checkpoints are compared."""
    chosen = (args.metric_for_best_model or "loss").removeprefix("eval_")
    shown = {"loss": logs.get("eval_loss"), chosen: logs.get(f"eval_{chosen}")}
    return ", ".join(f"{name} {value:.4g}" for name, value in shown.items() if isinstance(value, int | float))


class Interruption(TrainerCallback):
    """Save a checkpoint and stop when the user presses Ctrl-C during training; at the second time, stop at once.

    It needs a single process: several would stop at different steps, and wait for each other.

    Raises:
        KeyboardInterrupt: when the checkpoint is complete; the message has the step.
    """

    def __init__(self) -> None:
        self.requested = self.between = False
        self.before: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.world_size == 1 and threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._request)

    def _request(self, number: int, frame: Any) -> None:
        self.requested = True
        self._restore()
        say("Interrupted: a checkpoint is saved after this step. To stop at once, press Ctrl-C again.")

    def _restore(self) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            self.before = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.between = self.requested and not control.should_save
        control.should_save |= self.requested

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        for earlier in Path(args.output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{_MARK}"):
            shutil.rmtree(earlier.parent, ignore_errors=True)
        if self.between:
            (Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}" / _MARK).touch()
        if self.requested:
            raise KeyboardInterrupt(
                f"Interrupted at step {state.global_step} of {state.max_steps}; a checkpoint of this step is saved. To "
                "continue, give the same command with --resume."
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._restore()

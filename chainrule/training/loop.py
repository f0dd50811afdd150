"""Training: a model, batches and options become a run directory."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from chainrule.base import TrainableModel
from chainrule.training.checkpoint import CHECKPOINT, WEIGHTS, load_weights
from chainrule.training.evaluate import Evaluation, TrainingBatches, ValidationBatches
from chainrule.training.gradient_monitor import GradientProbe
from chainrule.training.options import TrainingOptions
from chainrule.training.parallel import deferred_interrupts, own_randomness, processes
from chainrule.training.report import make_display
from chainrule.training.training_loop import TrainingLoop
from chainrule.training.validation import Observe, OnValidation, ValidationMetric


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run.

    Args:
        directory: where it is.
        step: weight updates done.
        elements: elements trained on.
        elapsed: wall-clock seconds, earlier sessions included, as far as they count: see `TrainingOptions.budget`.
        steps_now: weight updates since the run was started or resumed; 0 where the run was at its end already.
        best: the best validation, whose weights are in `model.safetensors`.
        best_value: value of the metric; None where the likelihood decided.
        best_rows: how many held-out rows the value is of; 0 where the likelihood decided.
        best_step: its step.
        last: the last validation.
        ended_by: "patience" where it stopped early; "length" where steps, epochs or budget were used up.
    """

    directory: Path
    step: int
    steps_now: int
    elements: int
    elapsed: float
    best: Evaluation
    best_step: int
    best_value: float | None
    best_rows: int
    last: Evaluation
    ended_by: Literal["length", "patience"]


def train(
    model: TrainableModel,
    train_batches: TrainingBatches,
    valid_batches: ValidationBatches,
    options: TrainingOptions,
    directory: str | Path,
    *,
    resume: bool = False,
    on_validation: OnValidation | None = None,
    metric: ValidationMetric | None = None,
    observe: Observe | None = None,
    watch: GradientProbe | None = None,
    on_start: Callable[[], None] | None = None,
    progress: bool = True,
    began: float | None = None,
) -> TrainingResult:
    """Fit a model by maximum likelihood; it ends with the best weights in it.

    The directory receives `model.safetensors` (weights of the best validation), `checkpoint.safetensors` (all that is
    needed to go on), `metrics.jsonl` and `timings.jsonl`. A run of steps or epochs that is killed at any moment and
    resumed ends, on a CPU, with the same bits as one that was not. A resumed run may be longer than it was: it goes on
    at its place in the longer schedule, so the learning rate rises again if it had come down.

    Args:
        model: moved to the device of the options, and trained in place.
        train_batches: training data, see `TrainingBatches`. Under torchrun each process gives its own rows of the same
            global batches, `rank::world` of `process_shard()`, and all see the same directory.
        valid_batches: called at each validation for the held-out data, in order.
        options: how long and how to train.
        directory: the run directory, made if it is missing.
        resume: continue from the checkpoint there; where none was written yet, begin.
        on_validation: called with the model (in evaluation mode), the step and the seconds that it may take; the text
            it returns is shown. It is left out where the last one took longer than there is time for.
        metric: of the task, computed at each validation; the weights with the highest
            value are kept (of equals, those with the higher likelihood), and patience waits for one. Where not given,
            those with the highest likelihood.
        observe: called with the model (in evaluation mode) at each validation; the figures that it finds go into
            `metrics.jsonl`, and so does a warning, but for the first validation's.
        watch: looks at the gradients of the first step and every `watch_every` after it, for `metrics.jsonl` and
            warnings: `chainrule.diagnostics.gradient_profile` does, for recurrent models. It changes no weight.
        on_start: called by the first process when nothing was refused and the first step is about to be taken.
        progress: show a progress bar, or plain lines where standard error is no terminal.
        began: when, by `time.monotonic`, someone began to wait for this run; now, where not given.

    Raises:
        FileNotFoundError: there are trained weights to resume, but no checkpoint.
        ValueError: the directory holds a run and `resume` is false; the checkpoint is damaged; options or data changed.
        NonFiniteLossError: loss, gradient or weights are not finite; the last good checkpoint is kept.
        Interrupted: Ctrl-C or SIGTERM; the run is saved. A second Ctrl-C does not wait for that.
        OSError: the disk is full or not writable; the last good checkpoint is kept.
    """
    began, directory = monotonic() if began is None else began, Path(directory)
    if not resume and (directory / CHECKPOINT).exists():
        raise ValueError(
            f"directory: expected one without a run, got {directory}, which holds one: "
            "continue it with resume=True (--resume), or choose another"
        )
    if resume and not (directory / CHECKPOINT).exists() and (directory / WEIGHTS).exists():
        raise FileNotFoundError(
            f"{directory / CHECKPOINT}: no such file, so the run cannot go on, though {WEIGHTS} holds trained weights: "
            "restore the checkpoint, or begin again with --overwrite or in another directory"
        )
    with (
        processes(options.device) as process_group,
        own_randomness(process_group.device),
        deferred_interrupts(patient=process_group.world > 1) as interrupts,
    ):
        directory.mkdir(parents=True, exist_ok=True)
        display = make_display(shown=progress and process_group.first)
        loop = TrainingLoop(
            model, train_batches, valid_batches, options, directory, process_group, interrupts, on_validation, metric,
            observe, watch, display, began=began, resume=resume,
        )  # fmt: skip
        if on_start is not None and process_group.first:
            on_start()
        loop.run()
        process_group.agree([0.0])  # the first process has written the best weights before any other reads them
        load_weights(directory / WEIGHTS, model)
    position = loop.position
    assert position.best is not None
    assert position.last is not None
    return TrainingResult(
        directory=directory,
        step=position.step,
        steps_now=loop.steps,
        elements=position.elements,
        elapsed=position.elapsed,
        best=Evaluation(*position.best),
        best_step=position.best_step,
        best_value=position.best_value,
        best_rows=position.best_rows,
        last=Evaluation(*position.last),
        ended_by="patience" if loop.out_of_patience else "length",
    )

"""The training loop."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

import torch
from torch.optim import Optimizer

from chainrule._base import TrainableModel
from chainrule.devices import multiply_dtype
from chainrule.layers._low_rank import adapted
from chainrule.option_error import MissingError, OptionError, option
from chainrule.state import State
from chainrule.training._batch import Batch, TrainingBatches, ValidationBatches
from chainrule.training._callbacks import Callback, Ending
from chainrule.training._checkpoint import (
    CHECKPOINT,
    WEIGHTS,
    Saved,
    check_carried,
    load_weights,
    reading_state,
    restore_checkpoint,
    save_checkpoint,
    save_weights,
)
from chainrule.training._computation import emulation_note
from chainrule.training._duration import Duration, Position, make_duration, start_up_note
from chainrule.training._evaluate import Evaluation, TrainingResult
from chainrule.training._gradient_monitor import (
    EVERY,
    EVERY_ON_GPU,
    GradientAlarms,
    GradientMonitor,
    GradientProbe,
    Guard,
    are_finite,
)
from chainrule.training._gradients import Gradients
from chainrule.training._metrics import Metrics
from chainrule.training._optimiser import Muon, learning_rate, make_optimiser, restart
from chainrule.training._options import TrainingOptions
from chainrule.training._parallel import (
    STOP,
    Interrupted,
    Interrupts,
    Processes,
    deferred_interrupts,
    own_randomness,
    seed_step,
)
from chainrule.training._report import Display, Report, StepFigures, make_display
from chainrule.training._sharded_checkpoint import remove_shards, save_shards
from chainrule.training._sharding import trainee
from chainrule.training._validation import Observe, OnValidation, Validation, ValidationMetric

SAVE_SECONDS = 60.0  # between checkpoints: a killed run loses at most this much


def train(
    model: TrainableModel,
    train_batches: TrainingBatches,
    valid_batches: ValidationBatches,
    options: TrainingOptions,
    directory: str | Path,
    *,
    optimiser: Optimizer | None = None,
    resume: bool = False,
    on_validation: OnValidation | None = None,
    metric: ValidationMetric | None = None,
    observe: Observe | None = None,
    watch: GradientProbe | None = None,
    on_start: Callable[[], None] | None = None,
    callbacks: Sequence[Callback] = (),
    samples: bool = True,
    progress: bool = True,
    began: float | None = None,
) -> TrainingResult:
    """Fit a model by maximum likelihood, and load the best weights into it.

    The directory receives `model.safetensors` (weights of the best validation), `checkpoint.safetensors` (everything
    needed to resume), `metrics.jsonl` and `timings.jsonl`. A run of steps or epochs that is killed and resumed ends, on
    a CPU, with the same bits as an uninterrupted run. A resumed run may be extended: it continues at its position in
    the longer schedule, so the learning rate may rise again.

    Args:
        model: model to train in place; moved to the device of the options.
        train_batches: training data, see `TrainingBatches`. Under torchrun each process supplies its rows of the same
            global batches, `rank::world` of `process_shard()`, and all use the same directory.
        valid_batches: function that returns the validation batches in order.
        options: options of training.
        directory: run directory, created if it is missing.
        optimiser: result of `make_optimiser` for this model, of the kind that the options name, to use in place of a
            new one. It starts without moments, with the learning rate and weight decay of the options. Low-rank changes
            have their own.
        resume: continue from the checkpoint in the directory, if there is one.
        on_validation: function of the model (in evaluation mode), the step and the available seconds that returns a
            text to show. It is skipped if its last call took longer than the available time.
        metric: metric of the task, computed at each validation. The weights with the highest value are kept (ties: the
            higher likelihood), and patience refers to it. Default the likelihood. A validation on far more data
            replaces the best one, see `Position.record`.
        observe: function of the model (in evaluation mode) that returns extra metrics and a warning for
            `metrics.jsonl` at each validation; the first validation ignores warnings.
        watch: gradient probe for the first step and every `watch_every` steps, whose results go to `metrics.jsonl` and
            warnings; for recurrent models `chainrule.diagnostics.gradient_profile`. It changes no weight.
        on_start: function called by the first process after all checks, just before the first step.
        callbacks: receive the metrics of the run, see `Callback`.
        samples: save the results of `on_validation` in `samples.jsonl`.
        progress: show a progress bar, or plain lines if standard error is not a terminal.
        began: start of the wall-clock budget by `time.monotonic`; default now.

    Raises:
        FileNotFoundError: there are trained weights to resume, but no checkpoint.
        ValueError: the directory holds a run and `resume` is false; the checkpoint is damaged; options or data changed.
        NonFiniteLossError: loss, gradient or weights are not finite; the last good checkpoint is kept.
        Interrupted: Ctrl-C, SIGTERM or SIGHUP, or a file named `stop` in the directory; the run is saved, unless a
            second Ctrl-C follows.
        OSError: the disk is full or not writable; the last good checkpoint is kept.
    """
    began, directory = monotonic() if began is None else began, Path(directory)
    if not resume and (directory / CHECKPOINT).exists():
        raise OptionError(
            "directory",
            f"expected a directory without a run, got {directory}, which holds one",
            f"continue it with {option('resume', True)}, or choose another",
        )
    if resume and not (directory / CHECKPOINT).exists() and (directory / WEIGHTS).exists():
        raise MissingError(
            f"{directory / CHECKPOINT}: no such file, so the run cannot go on, though {WEIGHTS} holds trained weights",
            f"restore the checkpoint, or begin again with {option('overwrite', True)} or in another directory",
        )
    with (
        Processes.join(options.device) as process_group,
        own_randomness(process_group.device),
        deferred_interrupts(
            directory / STOP if process_group.first else None, patient=process_group.world > 1
        ) as interrupts,
    ):
        directory.mkdir(parents=True, exist_ok=True)
        display = make_display(enabled=progress and process_group.first)
        model.to(process_group.device)
        with adapted(model, options.lora_rank, options.lora_alpha, options.seed):
            duration = make_duration(options, train_batches.steps_per_epoch, valid_batches)
            validation = Validation(
                model, valid_batches, metric, observe, on_validation, duration, interrupts, process_group
            )
            loop = TrainingLoop(
                model, train_batches, options, directory, process_group, interrupts, duration, validation, watch,
                display, callbacks, optimiser=optimiser, samples=samples, began=began, resume=resume,
            )  # fmt: skip
            if on_start is not None and process_group.first:
                on_start()
            loop.run()
        process_group.agree([0.0])  # a barrier: the first process has written the best weights
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


class TrainingLoop:
    """Loop of steps, validations and checkpoints, from the run's position to its end."""

    # Checkpoints are saved between steps, after all metrics up to that step are on the disk.

    def __init__(
        self, model: TrainableModel, train_batches: TrainingBatches, options: TrainingOptions, directory: Path,
        process_group: Processes, interrupts: Interrupts, duration: Duration, validation: Validation,
        watch: GradientProbe | None, display: Display, callbacks: Sequence[Callback], *,
        optimiser: Optimizer | None, samples: bool, began: float, resume: bool,
    ):  # fmt: skip
        self._model, self._train_batches, self._options, self._directory = model, train_batches, options, directory
        self._process_group, self._interrupts = process_group, interrupts
        self._duration, self._validation = duration, validation
        self._state: State = None
        self.position = Position()
        self.steps = 0
        saved: Saved | None = None
        if resume and (directory / CHECKPOINT).exists():
            path, steps_per_epoch = directory / CHECKPOINT, train_batches.steps_per_epoch
            saved = restore_checkpoint(path, model, options, steps_per_epoch, process_group)
            self.position = saved.position
            self._duration.check_reaches(self.position)
            self._state = process_group.own_rows(saved.state)
        fresh = self.position.step == 0
        dtype = multiply_dtype(options.precision, process_group.device)
        self._trainee = trainee(model, dtype, process_group, shard=options.shard)
        trained = self._trainee.model
        if optimiser is None or options.lora_rank is not None or trained is not model:
            optimiser = make_optimiser(trained, options.learning_rate, options.weight_decay, options.optimiser)
        restart(optimiser, options.learning_rate, options.weight_decay)
        if isinstance(optimiser, Muon):
            optimiser.rank, optimiser.world = process_group.rank, process_group.world
        if saved is not None:
            saved.restore_moments(optimiser, trained)
        self._optimiser, self._folder = optimiser, "" if saved is None else saved.folder
        self._gradients = Gradients(self._trainee.objective, trained, process_group, options.clip_norm)
        metrics = Metrics(directory, self.position, callbacks, samples=samples) if process_group.first else None
        self._guard = Guard(self.position.step)
        alarms = GradientAlarms(self.position, options.clip_norm, model)
        self._report = Report(metrics, display, self._guard, alarms, process_group.device)
        for note in filter(None, (emulation_note(dtype, process_group.device), self._trainee.note)):
            self._report.note(note)
        every = options.watch_every or (EVERY_ON_GPU if process_group.device.type == "cuda" else EVERY)
        if options.lora_rank is not None:
            count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
            self._report.note(f"LoRA of rank {options.lora_rank}: {count:,} parameters are trained")
        self._watch = None if watch is None else GradientMonitor(watch, every)
        self._rate = options.learning_rate
        self._saved_at = monotonic()
        self.start_up = self._saved_at - began
        if fresh:
            counted = self.position.elapsed = self.position.validated_at = duration.start_up(self.start_up)
            if self.start_up > counted:
                self._report.note(start_up_note(self.start_up, counted))
        self._began = self._saved_at - self.position.elapsed  # so that earlier sessions count
        self._trainee.release()

    @property
    def out_of_patience(self) -> bool:
        """True if the validations have stopped improving."""
        return self._options.patience is not None and self.position.stale >= self._options.patience

    def run(self) -> None:
        """Train to the end of the run."""
        ending: Ending = "failed"
        mode = self._model.training
        self._model.train()
        try:
            self._loop()
            ending = "finished"
        except KeyboardInterrupt as stop:
            ending = "interrupted"
            if isinstance(stop, Interrupted):
                raise
            # A second signal, or an interrupt raised by the caller's code: quit without saving.
            raise Interrupted(self._directory, self._guard.saved_step) from None
        finally:
            self._model.train(mode)
            self._report.close(ending)

    def _loop(self) -> None:
        while True:
            self._read_clock()
            interrupted, finished, validate, save, progress = self._plan()
            if interrupted:
                self._report.note("Interrupted, saving… Press Ctrl-C again to quit without saving.")
                self._save()
                self._trainee.fill(everywhere=True)
                raise Interrupted(self._directory, self.position.step)
            if validate:
                self._validate(last=bool(finished))
            elif finished:
                self._trainee.fill(everywhere=True)
                return
            elif save:
                self._save()
            else:
                self._step(progress)

    def _plan(self) -> list[float]:
        """Return how many processes are to stop, and the next action by the clock of the first one."""
        position = self.position
        finished = self.out_of_patience or self._duration.finished(position)
        due = position.validated < position.step and (finished or self._duration.validation_due(position))
        save = monotonic() - self._saved_at > SAVE_SECONDS
        plan = [finished, due, save, self._duration.progress(position)]
        if not self._process_group.first:
            plan = [0.0] * len(plan)
        own = torch.tensor([self._interrupts.requested, *plan], dtype=torch.float64, device="cpu")
        return self._process_group.sum(own).tolist()  # one message instead of two

    def _step(self, progress: float) -> None:
        began, position, options = monotonic(), self.position, self._options
        batch = self._train_batches.at(position.step)
        self._rate = learning_rate(progress, options.learning_rate, options.warmup)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate
        if fresh_process := not self.steps:
            check_carried(self._directory / CHECKPOINT, self._trainee.model, self._state, batch)
        with reading_state(self._directory / CHECKPOINT, restored=self._state is not None and fresh_process):
            seed = partial(seed_step, options.seed, position.step, self._process_group.rank)
            result = self._gradients(batch, self._state, progress, seed)
        trained = position.elements + result.elements
        figures = StepFigures(position.step + 1, trained, *result[:3], self._rate, progress)
        look = self._watch is not None and self._watch.due(figures.step)
        # Check the figures before the update, so that a non-finite gradient does not reach the weights.
        seconds = self._report.step(figures, position.training_seconds, now=look)
        if seconds is not None:
            self._duration.step_took(seconds)
        if look:
            with self._trainee.whole():
                self._look(batch)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._state, position.step, position.elements = result.state, position.step + 1, trained
        position.training_seconds += monotonic() - began
        position.ended_budget = None
        self.steps += 1

    def _look(self, batch: Batch) -> None:
        """Measure the gradients of the current batch through time, in the first process."""
        if self._watch is None or not self._process_group.first:
            return
        profiles = self._watch.look(self._model, batch, self._state, self._process_group.device)
        if profiles:
            self._report.watch(self.position.step + 1, profiles)

    def _validate(self, *, last: bool) -> None:
        began, position = monotonic(), self.position
        self._report.flush()
        position.training_seconds += monotonic() - began  # includes queued steps of a GPU
        if not self._guard.saved_step:
            self._save()  # so that weights without a checkpoint always mean that the checkpoint was lost
        began, spacing = monotonic(), position.elapsed - position.validated_at
        until = began + self._duration.allowance(position, last=last)
        seed_step(self._options.seed, position.step, self._process_group.rank, "validation")
        with self._trainee.whole():
            if not self._measure(until, last=last):
                return
        validating = monotonic() - began
        self._save()
        self._read_clock()
        position.validated_at, position.validation_spacing = position.elapsed, spacing
        position.validation_seconds = monotonic() - began
        self._report.timing(
            position,
            progress=self._duration.progress(position),
            start_up_seconds=self.start_up,
            validating_seconds=validating,
        )

    def _measure(self, until: float, *, last: bool) -> bool:
        """Evaluate the model and save the best one; false after an interruption."""
        position = self.position
        likelihood = self._validation.likelihood(position, until - monotonic())
        if likelihood is None:
            return False
        evaluation = likelihood.evaluation
        self._guard.validation(position.step, evaluation.nats, self._rate)
        verdict = self._validation.verdict(position, until - monotonic())
        first = position.last is None
        best = position.record(likelihood, verdict, by_likelihood=self._validation.is_metric_shown_only)
        if last and not self.out_of_patience:
            self._duration.end(position)
        self._check_weights()
        if self._process_group.first:
            if best:
                about = {"step": position.step, "nats": evaluation.nats, "elements": evaluation.elements}
                save_weights(self._directory / WEIGHTS, self._model, about)
            findings = self._validation.findings()
            if first and findings is not None:  # too early for a warning
                findings = replace(findings, warning="")
            preview = self._validation.sample(position, until - monotonic())
            self._report.validation(position, evaluation, verdict, findings, best=best, preview=preview)
        return True

    def _save(self) -> None:
        began = monotonic()
        self._report.sync()
        self._check_weights()
        state, trained, shards = self._process_group.gather(self._state), self._trainee.model, None
        if self._options.shard:
            shards = save_shards(self._directory, self._folder, trained, self._optimiser, self._process_group)
            self._folder = shards["folder"]
        self._read_clock()
        if self._process_group.first:
            path, steps_per_epoch = self._directory / CHECKPOINT, self._train_batches.steps_per_epoch
            save_checkpoint(
                path, trained, self._optimiser, state, self.position, self._options, steps_per_epoch, shards
            )
            remove_shards(self._directory, self._folder)
        self._guard.saved_step = self.position.step
        self._saved_at = monotonic()
        self.position.saving_seconds = self._saved_at - began
        self._report.resume_clock()

    def _check_weights(self) -> None:
        finite = not self._process_group.any(not are_finite(self._trainee.model))
        self._guard.weights(finite, self.position.step, self._rate)

    def _read_clock(self) -> None:
        self.position.elapsed = monotonic() - self._began

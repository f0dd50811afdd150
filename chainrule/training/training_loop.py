"""The loop of a run: from its checkpoint, or the beginning, to its end or an interruption."""

from dataclasses import replace
from pathlib import Path
from time import monotonic

import torch

from chainrule.base import AutoregressiveModel, TrainableModel
from chainrule.state import State
from chainrule.training.checkpoint import CHECKPOINT, WEIGHTS, restore_checkpoint, save_checkpoint, save_weights
from chainrule.training.computation import emulation_note, multiply_dtype
from chainrule.training.duration import Position, make_duration
from chainrule.training.evaluate import (
    Batch,
    Evaluation,
    Objective,
    TrainingBatches,
    ValidationBatches,
    count_elements,
    score,
)
from chainrule.training.gradient_monitor import (
    EVERY,
    EVERY_ON_GPU,
    GradientAlarms,
    GradientMonitor,
    GradientProbe,
    Guard,
)
from chainrule.training.metrics import Metrics
from chainrule.training.optimiser import clip_gradient, learning_rate, make_optimiser
from chainrule.training.options import TrainingOptions
from chainrule.training.parallel import Interrupted, Interrupts, Processes, seed_step
from chainrule.training.report import Display, Report, StepFigures
from chainrule.training.validation import (
    Findings,
    Likelihood,
    MetricResult,
    MetricValue,
    Observe,
    OnValidation,
    Validation,
    ValidationMetric,
)

SAVE_SECONDS = 60.0  # a killed run loses no more than this


class TrainingLoop:
    """Takes steps, validates and saves, from the run's position to its end. The arguments are those of `train`.

    Whatever is saved is saved between two steps, with all figures up to there on the disk before it.
    """

    def __init__(
        self,
        model: TrainableModel,
        train_batches: TrainingBatches,
        valid_batches: ValidationBatches,
        options: TrainingOptions,
        directory: Path,
        process_group: Processes,
        interrupts: Interrupts,
        on_validation: OnValidation | None,
        metric: ValidationMetric | None,
        observe: Observe | None,
        watch: GradientProbe | None,
        display: Display,
        *,
        began: float,
        resume: bool,
    ):
        self._model = model.to(process_group.device)
        self._train_batches = train_batches
        self._options, self._directory, self._process_group = options, directory, process_group
        self._interrupts = interrupts
        self._optimiser = make_optimiser(model, options.learning_rate, options.weight_decay, options.optimiser)
        self._duration = make_duration(options, train_batches.steps_per_epoch, valid_batches)
        self._validation = Validation(model, valid_batches, metric, observe, on_validation, self._duration, interrupts)
        self._state: State = None
        self.position = Position()
        self.steps = 0
        if resume and (directory / CHECKPOINT).exists():
            state, self.position = restore_checkpoint(
                directory / CHECKPOINT, model, self._optimiser, options, train_batches.steps_per_epoch
            )
            self._duration.check_reaches(self.position)
            self._state = process_group.own_rows(state)
        fresh = self.position.step == 0
        dtype = multiply_dtype(options.precision, process_group.device)
        self._objective = process_group.distribute(Objective(model, dtype))
        metrics = Metrics(directory, self.position, tensorboard=options.tensorboard) if process_group.first else None
        self._guard = Guard(self.position.step)
        alarms = GradientAlarms(self.position, options.clip_norm, model)
        self._report = Report(metrics, display, self._guard, alarms, process_group.device)
        if note := emulation_note(dtype, process_group.device):
            self._report.note(note)
        every = options.watch_every or (EVERY_ON_GPU if process_group.device.type == "cuda" else EVERY)
        self._watch = None if watch is None else GradientMonitor(watch, every)
        self._rate = options.learning_rate
        self._saved_at = monotonic()
        self.start_up = self._saved_at - began
        if fresh:
            self.position.elapsed = self.position.validated_at = self._duration.start_up(self.start_up)
            self._say_start_up()
        self._began = self._saved_at - self.position.elapsed  # as if the run had never stopped

    @property
    def out_of_patience(self) -> bool:
        """Whether the validations have stopped improving."""
        return self._options.patience is not None and self.position.stale >= self._options.patience

    def run(self) -> None:
        """Train to the end; raises what `train` raises."""
        mode = self._model.training
        self._model.train()
        try:
            self._loop()
        except Interrupted:
            raise
        except KeyboardInterrupt:  # a second signal, or one raised by the caller's own code: nothing more is saved
            raise Interrupted(self._directory, self._guard.saved_step) from None
        finally:
            self._model.train(mode)
            self._report.close()

    def _loop(self) -> None:
        while True:
            self._read_clock()
            if self._process_group.any(self._interrupts.requested):
                self._report.note("interrupted: saving (once more breaks off without)")
                self._save()
                raise Interrupted(self._directory, self.position.step)
            finished, validate, save, progress = self._plan()
            if validate:
                self._validate(last=bool(finished))
            elif finished:
                return
            elif save:
                self._save()
            else:
                self._step(progress)

    def _plan(self) -> list[float]:
        """Decide on the next act in the first process: its clock is the clock of all."""
        position = self.position
        finished = self.out_of_patience or self._duration.finished(position)
        due = position.validated < position.step and (finished or self._duration.validation_due(position))
        save = monotonic() - self._saved_at > SAVE_SECONDS
        return self._process_group.agree([finished, due, save, self._duration.progress(position)])

    def _step(self, progress: float) -> None:
        began, position, options = monotonic(), self.position, self._options
        batch = self._train_batches.at(position.step)
        seed_step(options.seed, position.step, self._process_group.rank)
        self._rate = learning_rate(progress, options.learning_rate, options.warmup)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate
        nats, state = score(self._objective, batch, self._state, self._process_group.device, progress)
        elements = int(self._process_group.sum(torch.tensor(count_elements(batch))))
        (nats * (self._process_group.world / elements)).backward()  # processes average their gradients: this sums them
        norm = clip_gradient(self._model, options.clip_norm)
        trained = position.elements + elements
        nats = self._process_group.sum(nats.detach())
        figures = StepFigures(position.step + 1, trained, elements, nats, norm, self._rate, progress)
        look = self._watch is not None and self._watch.due(figures.step)
        # Before the update: a bad gradient must not reach it.
        seconds = self._report.step(figures, position.training_seconds, now=look)
        if seconds is not None:
            self._duration.step_took(seconds)
        if look and self._process_group.first:
            self._look(batch)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._state, position.step, position.elements = state, position.step + 1, trained
        position.training_seconds += monotonic() - began
        position.ended_budget = None
        self.steps += 1

    def _look(self, batch: Batch) -> None:
        """At the gradients of the present batch and weights, through time."""
        assert self._watch is not None
        assert isinstance(self._model, AutoregressiveModel)  # what has no recurrence is refused by the watch itself
        profiles = self._watch.look(self._model, batch, self._state, self._process_group.device)
        if profiles:
            self._report.watch(self.position.step + 1, profiles)

    def _validate(self, *, last: bool) -> None:
        began, position = monotonic(), self.position
        self._report.flush()
        position.training_seconds += monotonic() - began  # a GPU may still have been at the last steps
        if not self._guard.saved_step:
            self._save()  # weights on the disk without a checkpoint tell of one that was lost
        began, spacing = monotonic(), position.elapsed - position.validated_at
        until = began + self._duration.allowance(position, last=last)
        seed_step(self._options.seed, position.step, self._process_group.rank, "validation")
        likelihood = self._likelihood(until - began)
        if likelihood is None:
            return
        evaluation = likelihood.evaluation
        self._guard.validation(position.step, evaluation.nats, self._rate)
        verdict = self._verdict(until - monotonic())
        first = position.last is None
        best = position.record(likelihood, verdict)
        if last and not self.out_of_patience:
            self._duration.end(position)
        if self._process_group.first:
            self._guard.weights(self._model, position.step, self._rate)
            if best:
                about = {"step": position.step, "nats": evaluation.nats, "elements": evaluation.elements}
                save_weights(self._directory / WEIGHTS, self._model, about)
            measured = "" if verdict is None else verdict.metric.text
            findings = self._findings(first=first)
            told = "" if findings is None else findings.text
            texts = (self._validation.sample(position, until - monotonic()), measured, told)
            sample = "\n".join(text for text in texts if text) or None
            self._report.validation(position, evaluation, verdict, findings, best=best, sample=sample)
        validating = monotonic() - began
        self._save()
        self._read_clock()
        position.validated_at, position.validation_spacing = position.elapsed, spacing
        position.validation_seconds = monotonic() - began
        self._report.timing(position, start_up_seconds=self.start_up, validating_seconds=validating)

    def _likelihood(self, seconds: float) -> Likelihood | None:
        """The first process evaluates while the others wait; None where an interruption broke it off."""
        found = self._validation.likelihood(self.position, seconds) if self._process_group.first else None
        numbers = [0.0] * 6
        if found is not None:
            numbers = [found.evaluation.nats, found.evaluation.elements, found.common.nats, found.common.elements]
            numbers += [found.batches, found.whole]
        nats, elements, common, common_elements, batches, whole = self._process_group.agree(numbers)
        if not batches:
            return None
        both = Evaluation(nats, int(elements)), Evaluation(common, int(common_elements))
        return Likelihood(*both, int(batches), bool(whole))

    def _verdict(self, seconds: float) -> MetricResult | None:
        """The first process compares while the others wait for the value."""
        if not self._validation.has_metric:
            return None
        verdict = MetricResult(MetricValue("", 0.0), 0.0, 0, False)
        if self._process_group.first:
            verdict = self._validation.verdict(self.position, seconds)
        numbers = [verdict.metric.value, verdict.common, verdict.rows, verdict.whole]
        value, common, rows, whole = self._process_group.agree(numbers)
        return MetricResult(replace(verdict.metric, value=value), common, int(rows), bool(whole))

    def _findings(self, *, first: bool) -> Findings | None:
        """Further figures. Hardly anything is learnt at the first validation: it warns of nothing."""
        findings = self._validation.findings()
        return replace(findings, warning="") if first and findings is not None else findings

    def _say_start_up(self) -> None:
        over = self.start_up - self.position.elapsed
        if over > 0:
            self._report.note(
                f"starting up took {self.start_up:.1f} s, of which a fifth of the budget counts: "
                f"the run ends {over:.1f} s after its budget"
            )

    def _save(self) -> None:
        began = monotonic()
        self._report.sync()
        self._guard.weights(self._model, self.position.step, self._rate)
        state = self._process_group.gather(self._state)
        self._read_clock()
        if self._process_group.first:
            save_checkpoint(
                self._directory / CHECKPOINT,
                self._model,
                self._optimiser,
                state,
                self.position,
                self._options,
                self._train_batches.steps_per_epoch,
            )
        self._guard.saved_step = self.position.step
        self._saved_at = monotonic()
        self.position.saving_seconds = self._saved_at - began
        self._report.resume_clock()

    def _read_clock(self) -> None:
        self.position.elapsed = monotonic() - self._began

"""One sitting of a run: from its checkpoint, or the beginning, to its end or an interruption."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import torch

from chainrule.base import AutoregressiveModel, LikelihoodModel
from chainrule.state import State
from chainrule.training.batch import Batch, TrainingBatches, ValidationBatches, count_elements
from chainrule.training.checkpoint import CHECKPOINT, WEIGHTS, restore_checkpoint, save_checkpoint, save_weights
from chainrule.training.errors import Interrupted
from chainrule.training.evaluate import Evaluation, evaluate, score
from chainrule.training.extent import make_extent
from chainrule.training.gradient_alarms import GradientAlarms
from chainrule.training.gradient_watch import EVERY, EVERY_ON_GPU, GradientWatch, Watch
from chainrule.training.guard import Guard
from chainrule.training.interrupts import Interrupts
from chainrule.training.judge import Judge, Judgement
from chainrule.training.metrics import Metrics
from chainrule.training.objective import Objective
from chainrule.training.optimiser import clip_gradient, make_optimiser
from chainrule.training.options import TrainingOptions
from chainrule.training.parallel import Processes
from chainrule.training.position import Position
from chainrule.training.precision import multiply_dtype
from chainrule.training.progress import Display
from chainrule.training.randomness import seed_step
from chainrule.training.report import Report, StepFigures
from chainrule.training.schedule import learning_rate

SAVE_SECONDS = 60.0  # a killed run loses no more than this
OnValidation = Callable[[LikelihoodModel, int], str | None]


class Sitting:
    """Takes steps, validates and saves, from where the run stands until it is done. The arguments are those of `train`.

    Whatever is saved is saved between two steps, with all figures up to there on the disk before it.
    """

    def __init__(
        self,
        model: LikelihoodModel,
        train_batches: TrainingBatches,
        valid_batches: ValidationBatches,
        options: TrainingOptions,
        directory: Path,
        team: Processes,
        interrupts: Interrupts,
        on_validation: OnValidation | None,
        judge: Judge | None,
        watch: Watch | None,
        display: Display,
        *,
        began: float,
        resume: bool,
    ):
        self._model = model.to(team.device)
        self._train_batches, self._valid_batches = train_batches, valid_batches
        self._options, self._directory, self._team = options, directory, team
        self._interrupts, self._on_validation, self._judge = interrupts, on_validation, judge
        self._optimiser = make_optimiser(model, options.learning_rate, options.weight_decay)
        self._extent = make_extent(options, train_batches.steps_per_epoch)
        self._state: State = None
        self.position = Position()
        if resume and (directory / CHECKPOINT).exists():
            state, self.position = restore_checkpoint(
                directory / CHECKPOINT, model, self._optimiser, options, train_batches.steps_per_epoch
            )
            self._extent.check_reaches(self.position)
            self._state = team.own_rows(state)
        self._objective = team.distribute(Objective(model, multiply_dtype(options.precision, team.device)))
        metrics = Metrics(directory, self.position, tensorboard=options.tensorboard) if team.first else None
        self._guard = Guard(self.position.step)
        alarms = GradientAlarms(self.position, options.clip_norm, model)
        self._report = Report(metrics, display, self._guard, alarms, team.device)
        every = options.watch_every or (EVERY_ON_GPU if team.device.type == "cuda" else EVERY)
        self._watch = None if watch is None else GradientWatch(watch, every)
        self._rate = options.learning_rate
        self._began = began - self.position.elapsed  # as if the run had been one sitting
        self._saved_at = monotonic()

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
            if self._team.any(self._interrupts.requested):
                self._report.note("interrupted: saving (once more breaks off without)")
                self._save()
                raise Interrupted(self._directory, self.position.step)
            finished, validate, save, progress = self._plan()
            if validate:
                self._validate()
            elif finished:
                return
            elif save:
                self._save()
            else:
                self._step(progress)

    def _plan(self) -> list[float]:
        """What comes next, decided by the first process: its clock is the clock of all."""
        position = self.position
        finished = self.out_of_patience or self._extent.finished(position)
        due = position.validated < position.step and (finished or self._extent.validation_due(position))
        save = monotonic() - self._saved_at > SAVE_SECONDS
        return self._team.agree([finished, due, save, self._extent.progress(position)])

    def _step(self, progress: float) -> None:
        position, options = self.position, self._options
        batch = self._train_batches.at(position.step)
        seed_step(options.seed, position.step, self._team.rank)
        self._rate = learning_rate(progress, options.learning_rate, options.warmup)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate
        nats, state = score(self._objective, batch, self._state, self._team.device)
        elements = int(self._team.sum(torch.tensor(count_elements(batch))))
        (nats * (self._team.world / elements)).backward()  # processes average their gradients: this sums them
        norm = clip_gradient(self._model, options.clip_norm)
        trained = position.elements + elements
        nats = self._team.sum(nats.detach())
        figures = StepFigures(position.step + 1, trained, elements, nats, norm, self._rate, progress)
        look = self._watch is not None and self._watch.due(figures.step)
        # Before the update: a bad gradient must not reach it.
        seconds = self._report.step(figures, position.elapsed, now=look)
        if seconds is not None:
            self._extent.step_took(seconds)
        if look and self._team.first:
            self._look(batch)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._state, position.step, position.elements = state, position.step + 1, trained

    def _look(self, batch: Batch) -> None:
        """At the gradients of the present batch and weights, through time."""
        assert self._watch is not None
        assert isinstance(self._model, AutoregressiveModel)  # what has no recurrence is refused by the watch itself
        profiles = self._watch.look(self._model, batch, self._state, self._team.device)
        if profiles:
            self._report.watch(self.position.step + 1, profiles)

    def _validate(self) -> None:
        self._report.flush()
        if not self._guard.saved_step:
            self._save()  # weights on the disk without a checkpoint tell of one that was lost
        began, position = monotonic(), self.position
        seed_step(self._options.seed, position.step, self._team.rank, "validation")
        evaluation = self._evaluate()
        if evaluation is None:
            return
        self._guard.validation(position.step, evaluation.nats, self._rate)
        judgement = self._judgement()
        best = position.record(evaluation, None if judgement is None else judgement.value)
        if self._team.first:
            self._guard.weights(self._model, position.step, self._rate)
            if best:
                about = {"step": position.step, "nats": evaluation.nats, "elements": evaluation.elements}
                save_weights(self._directory / WEIGHTS, self._model, about)
            shown = [self._sample(), judgement.text if judgement is not None else None]
            self._read_clock()
            seconds = monotonic() - began
            sample = "\n".join(text for text in shown if text) or None
            self._report.validation(position, evaluation, judgement, best=best, sample=sample, seconds=seconds)
        self._save()
        self._read_clock()
        position.validated_at, position.validation_seconds = position.elapsed, monotonic() - began

    def _evaluate(self) -> Evaluation | None:
        """The first process evaluates while the others wait; None where an interruption broke it off."""
        nats, elements = 0.0, 0
        if self._team.first:
            try:
                evaluation = evaluate(self._model, self._held_out())
                nats, elements = evaluation.nats, evaluation.elements
            except _BrokenOffError:
                pass
        nats, count = self._team.agree([nats, elements])
        return Evaluation(nats, int(count)) if count else None

    def _held_out(self) -> Iterator[Batch]:
        for batch in self._extent.validation_part(self._valid_batches(), self.position):
            if self._interrupts.requested:
                raise _BrokenOffError
            yield batch

    def _judgement(self) -> Judgement | None:
        """The first process judges while the others wait for the value."""
        if self._judge is None:
            return None
        judgement = Judgement("", 0.0)
        if self._team.first:
            self._model.eval()
            try:
                with torch.no_grad():
                    judgement = self._judge(self._model, self.position.step)
            finally:
                self._model.train()
        (value,) = self._team.agree([judgement.value])
        return replace(judgement, value=value)

    def _sample(self) -> str | None:
        if self._on_validation is None:
            return None
        self._model.eval()
        try:
            return self._on_validation(self._model, self.position.step)
        finally:
            self._model.train()

    def _save(self) -> None:
        self._report.sync()
        self._guard.weights(self._model, self.position.step, self._rate)
        state = self._team.gather(self._state)
        self._read_clock()
        if self._team.first:
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
        self._report.resume_clock()

    def _read_clock(self) -> None:
        self.position.elapsed = monotonic() - self._began


class _BrokenOffError(Exception):
    """An interruption came during a validation: it is done anew when the run is resumed."""

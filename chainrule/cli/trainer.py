"""What `chainrule train` does with every kind of run: prepare or reopen it, train it, and say what came of it."""

import json as json_format
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from chainrule.cli.command_line import flag, resume_command
from chainrule.cli.durations import format_duration
from chainrule.cli.facts import chosen_flags
from chainrule.cli.fastest import settle_computation
from chainrule.cli.ladder import Ladder, choose_size, is_open, tell_size
from chainrule.cli.options import RunFlags
from chainrule.cli.start_time import take_start
from chainrule.runs.config import Extent, RunConfig
from chainrule.runs.run import CONFIG, Run, refuse_taken, remove

if TYPE_CHECKING:
    from chainrule.training import Judge, TrainingBatches, ValidationBatches, Watch
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

R = TypeVar("R", bound=Run[Any])
Shard = tuple[int, int]


class Trainer(ABC, Generic[R]):
    """How runs of one kind are prepared and trained. A subclass a kind; `train_run` does the rest.

    Attributes:
        RUN: the kind of run.
        FREE: options of training that may change on resume.
        LADDERS: sizes of the models that have several.
        NEEDS: packages without which no validation succeeds, and the extra of each.
    """

    RUN: type[R]
    NEEDS: ClassVar[dict[str, str]] = {}
    FREE: ClassVar[frozenset[str]] = frozenset({"patience", "device", "tensorboard"})
    LADDERS: ClassVar[dict[str, Ladder]] = {}

    @abstractmethod
    def prepare(self, draft: R) -> dict[str, Any]:
        """Read the data, write what training needs into the directory of the draft, return the facts of its config.

        Raises:
            ValueError, OSError: the data cannot be read or trained on: nothing of the draft is kept.
        """

    @abstractmethod
    def batches(self, run: R, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        """The training batches of this process, and what makes the held-out ones."""

    @abstractmethod
    def introduce(self, run: R) -> Iterable[str]:
        """Lines that say what the data was found to be."""

    @abstractmethod
    def summary(self, run: R, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        """The figures that are the kind's own, and the line that tells the best validation."""

    @abstractmethod
    def next_steps(self, run: R) -> Sequence[str]:
        """Commands to try now."""

    def settle(self, asked: RunConfig) -> RunConfig:
        """The config, with what the data is read by decided; only of a new run."""
        return asked

    def plan(self, draft: R, given: frozenset[str]) -> RunConfig:
        """The config of a new run whose data is prepared, with what the user left open decided.

        Args:
            draft: the run.
            given: the options that the user wrote (`--hidden-size`).
        """
        ladder = self.LADDERS.get(draft.config.model)
        if ladder is None or not is_open(ladder, draft.config, given):
            return draft.config
        return choose_size(draft, ladder, self.batches(draft, (0, 1))[0])

    def choice(self, run: R) -> str:
        """The line that says what `plan` decided, and what for."""
        config = run.config
        usual = self.settle(replace(config, options=type(config.options)())).options
        return tell_size(config, self.LADDERS[config.model], usual)

    def fingerprint(self, path: str | None) -> dict[str, Any]:
        """By which a source is known again: at least `name`, `bytes` and `sha256`."""
        from chainrule.data.source import fingerprint

        return fingerprint(path)

    def is_prepared(self, run: R) -> bool:
        """Whether the data that `prepare` wrote is there; where it is not, a resumed run prepares it again."""
        return True

    def on_validation(self, run: R) -> "OnValidation | None":
        """What shows, at each validation, what the model can do."""
        return None

    def judge(self, run: R) -> "Judge | None":
        """What decides which weights are kept, where that is not the likelihood."""
        return None

    def watch(self, run: R) -> "Watch | None":
        """What looks at the gradients while it trains."""
        return None


def train_run(trainer: Trainer[R], asked: RunConfig, out: Path, flags: RunFlags, given: frozenset[str]) -> int:
    """Train a new run, or go on with one; returns the exit status.

    Args:
        trainer: of the kind.
        asked: what the command line says.
        out: the run directory.
        flags: whether to resume, overwrite, or print JSON.
        given: the names of options that the user wrote (`--hidden-size`): on resume only these must agree.

    Raises:
        FileExistsError: `out` is taken.
        ValueError, OSError: the options cannot be, the data cannot be read, or both changed since the run began.
        KeyboardInterrupt: Ctrl-C; the run is saved.
    """
    from chainrule.training.errors import Interrupted

    if flags.resume and flags.overwrite:
        raise ValueError("--resume and --overwrite: one continues a run, the other deletes it: choose one")
    try:
        return _train(trainer, asked, out, flags, given)
    except Interrupted as stop:
        raise KeyboardInterrupt(f"interrupted; step {stop.step} is saved, go on with: {resume_command(out)}") from None


def _check_packages(trainer: Trainer[R], config: RunConfig) -> None:
    needs = trainer.NEEDS | ({"tensorboard": "tensorboard"} if config.training.tensorboard else {})
    for package, extra in needs.items():
        if find_spec(package) is None:
            raise ValueError(
                f"training needs the package {package}, which is not installed: pip install 'chainrule[{extra}]'"
            )


def _train(trainer: Trainer[R], asked: RunConfig, out: Path, flags: RunFlags, given: frozenset[str]) -> int:
    began = take_start()
    from chainrule.training.computation import computing
    from chainrule.training.loop import train
    from chainrule.training.options import TrainingOptions
    from chainrule.training.parallel import processes

    before = trainer.RUN.open(out).config if flags.resume else None
    _check_packages(trainer, asked if before is None or "--tensorboard" in given else before)
    with processes((asked if before is None or "--device" in given else before).training.device) as team:
        if team.first:
            if flags.resume:
                _resume(trainer, asked, out, given)
            else:
                create_run(trainer, asked, out, overwrite=flags.overwrite, given=given)
        team.agree([0.0])  # the others wait for the first
        run = trainer.RUN.open(out)
        network = run.new_model(run.config.training.seed)
        batches, held_out = trainer.batches(run, (team.rank, team.world))
        if team.first:
            parameters = sum(weight.numel() for weight in network.parameters())
            lines = list(trainer.introduce(run))
            if same := chosen_flags(run.config):
                lines += [trainer.choice(run), f"the same again: {same}"]
            lines.append(f"{run.config.model} with {parameters:,} parameters, in {run.path}")
            print("\n".join(lines), file=sys.stderr, flush=True)
        computation = settle_computation(run, network, batches, team)
        known = {item.name for item in fields(TrainingOptions)}
        settings = asdict(run.config.extent) | asdict(run.config.training) | {"precision": computation.precision}
        options = TrainingOptions(**{name: value for name, value in settings.items() if name in known})
        try:
            with computing(network, computation):
                result = train(
                    network, batches, held_out, options, run.path, resume=flags.resume, began=began,
                    on_validation=trainer.on_validation(run), judge=trainer.judge(run), watch=trainer.watch(run),
                )  # fmt: skip
        except ValueError:
            if team.first and before is not None:  # refused, so the run stays as it was
                trainer.RUN(out, before).write_config()
            raise
    if team.first:
        _conclude(trainer, run, result, json=flags.json)
    return 0


def create_run(
    trainer: Trainer[R], asked: RunConfig, out: Path, *, overwrite: bool, given: frozenset[str] = frozenset()
) -> None:
    """A new run, its data prepared. It takes its place, and an old run goes, only when nothing can fail any more."""
    refuse_taken(out, overwrite=overwrite)
    whole = out.resolve()
    draft_path = whole.with_name(f"{whole.name}.preparing")
    _discard(draft_path)  # left by a run that was killed while it prepared its data
    asked = trainer.settle(asked)
    draft = trainer.RUN.create(draft_path, asked)
    try:
        draft.config = replace(asked, facts=trainer.prepare(draft))
        draft.config = trainer.plan(draft, given)
        draft.write_config()
        trainer.batches(draft, (0, 1))
        draft.new_model(asked.training.seed)
        remove(out)
        if out.exists():
            _adopt(draft.path, out)
        else:
            draft.path.rename(out)
    except BaseException:
        _discard(draft.path)
        raise


def _resume(trainer: Trainer[R], asked: RunConfig, out: Path, given: frozenset[str]) -> None:
    run = trainer.RUN.open(out)
    changed = list(_changes(trainer, run.config, asked, given))
    if changed:
        raise ValueError(
            f"--resume: {out} was begun with other options: {'; '.join(changed)}: leave them out, "
            "or begin another run with another --out"
        )
    sources = {
        name: asked.sources[name] if argument in given else run.config.sources[name]
        for name, argument in trainer.RUN.SOURCES.items()
    }
    for name, argument in trainer.RUN.SOURCES.items():
        if name == "source" or argument in given or sources[name] is not None:
            _compare(trainer, run, sources[name], name)
    free = {name: getattr(asked.training, name) for name in trainer.FREE if flag(name) in given}
    extended = {flag(item.name) for item in fields(Extent)} & given
    config = replace(
        run.config,
        sources=sources,
        training=replace(run.config.training, **free),
        extent=asked.extent if extended else run.config.extent,
    )
    if config != run.config:
        run.config = config
        run.write_config()
    if not trainer.is_prepared(run):
        trainer.prepare(run)


def _changes(trainer: Trainer[R], old: RunConfig, new: RunConfig, given: frozenset[str]) -> Iterable[str]:
    if "--model" in given and old.model != new.model:
        yield f"--model was {old.model} and is {new.model}"
    for section in ("data", "options", "training"):
        before, now = asdict(getattr(old, section)), asdict(getattr(new, section))
        for name, value in now.items():
            if name not in trainer.FREE and flag(name) in given and before.get(name) != value:
                yield f"{flag(name)} was {before.get(name)} and is {value}"


def _compare(trainer: Trainer[R], run: R, path: str | None, name: str) -> None:
    """Refuse other data than the run began with; what is gone does not matter while it is there as prepared."""
    began = run.config.facts[name]
    if path is not None and not Path(path).exists() and trainer.is_prepared(run):
        return
    now = trainer.fingerprint(path)
    if began is None or any(began[entry] != now[entry] for entry in ("bytes", "sha256")):
        raise ValueError(
            f"--resume: {trainer.RUN.SOURCES[name]} changed since the run began: "
            f"it was {_describe(began)} and is {_describe(now)}: restore it, or begin another run with another --out"
        )


def _describe(source: dict[str, Any] | None) -> str:
    if source is None:
        return "none"
    return f"{source['name']} ({source['bytes']} bytes, SHA-256 {source['sha256'][:12]}…)"


def _adopt(draft: Path, out: Path) -> None:
    """Move the parts of a run into a directory that is there, what makes it a run last."""
    for part in sorted(draft.iterdir(), key=lambda part: part.name == CONFIG):
        part.rename(out / part.name)
    draft.rmdir()


def _discard(draft: Path) -> None:
    """Delete a half-made run, and its directory unless someone keeps other files in it."""
    if draft.is_dir():
        remove(draft)
        if not any(draft.iterdir()):
            draft.rmdir()


def _conclude(trainer: Trainer[R], run: R, result: "TrainingResult", *, json: bool) -> None:
    figures, told = trainer.summary(run, result)
    if json:
        summary = {
            "run": str(run.path),
            "steps": result.step,
            "steps_now": result.steps_now,
            "elements": result.elements,
            "seconds": result.elapsed,
            "ended_by": result.ended_by,
            "best_step": result.best_step,
            "nats_per_element": result.best.nats_per_element,
            "validation_elements": result.best.elements,
        }
        print(json_format.dumps(summary | figures))
        return
    if result.steps_now == 0:
        print(
            f"nothing to do: the run is at its end, {result.step:,} steps in {format_duration(result.elapsed)}; "
            f"{resume_command(run.path)} --budget ...  (a longer total) trains on"
        )
        return
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    commands = [*trainer.next_steps(run), f"{resume_command(run.path)} --budget ...  (a longer total trains on)"]
    print(
        f"\n{result.step:,} steps in {format_duration(result.elapsed)}{early}\n"
        f"best: {told}, at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: {commands[0]}\n" + "\n".join(f"      {command}" for command in commands[1:])
    )

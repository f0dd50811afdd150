"""What `chainrule train` does with every kind of run: prepare or reopen it, train it, and say what came of it."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from chainrule.cli.command_line import flag, resume_command
from chainrule.cli.display import dump_json, printable
from chainrule.cli.durations import format_duration
from chainrule.cli.facts import chosen_flags
from chainrule.cli.fastest import settle_computation
from chainrule.cli.ladder import Ladder, choose_size, is_open, tell_size
from chainrule.cli.options import RunFlags
from chainrule.cli.resuming import resumed_config
from chainrule.cli.start_time import take_start
from chainrule.runs.config import Extent, RunConfig
from chainrule.runs.lock import lock_run
from chainrule.runs.run import CONFIG, DRAFT, Run, refuse_taken, remove, remove_folder

if TYPE_CHECKING:
    from chainrule.training import Judge, TrainingBatches, ValidationBatches, Watch
    from chainrule.training.loop import TrainingResult
    from chainrule.training.options import TrainingOptions
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
        """The config of a new run, its data prepared, with what the user left open decided; `given` flags are typed."""
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
    from chainrule.training.parallel import processes

    before = trainer.RUN.open(out).config if flags.resume else None
    _check_packages(trainer, asked if before is None or "--tensorboard" in given else before)
    if before is None:
        refuse_taken(out, overwrite=flags.overwrite)
    with (
        processes((asked if before is None or "--device" in given else before).training.device) as team,
        lock_run(out) if team.first else nullcontext(),
    ):
        if team.first and before is None:
            create_run(trainer, asked, out, overwrite=flags.overwrite, given=given)
        team.agree([0.0])  # the others wait for the first
        run = trainer.RUN.open(out)
        if before is not None:
            run.config = resumed_config(trainer, run, asked, given, check_data=team.first)
            if team.first and not trainer.is_prepared(run):
                trainer.prepare(run)
            team.agree([0.0])
        network = run.new_model(run.config.training.seed)
        batches, held_out = trainer.batches(run, (team.rank, team.world))
        if team.first:
            parameters = sum(weight.numel() for weight in network.parameters())
            same = chosen_flags(run.config)
            choice = [trainer.choice(run), f"the same again: {same}"] if same else []
            model = f"{run.config.model} with {parameters:,} parameters, in {run.path}"
            lines = [*trainer.introduce(run), *choice, model]
            print(printable("\n".join(lines)), file=sys.stderr, flush=True)
        computation = settle_computation(run, network, batches, team)
        options = replace(training_options(run.config), precision=computation.precision)
        with computing(network, computation):
            result = train(
                network, batches, held_out, options, run.path, resume=flags.resume, began=began,
                on_start=run.write_config, on_validation=trainer.on_validation(run), judge=trainer.judge(run),
                watch=trainer.watch(run),
            )  # fmt: skip
    if team.first:
        _conclude(trainer, run, result, json=flags.json)
    return 0


def training_options(config: RunConfig) -> "TrainingOptions":
    """The options of training that a config asks for.

    Raises:
        ValueError: training cannot be done with them.
    """
    from chainrule.training.options import TrainingOptions

    known = {item.name for item in fields(TrainingOptions)}
    settings = asdict(config.extent) | asdict(config.training)
    return TrainingOptions(**{name: value for name, value in settings.items() if name in known})


def _check_startable(options: "TrainingOptions") -> None:
    """Raise ValueError for what this machine cannot do."""
    from chainrule.training.metrics import check_tensorboard
    from chainrule.training.parallel import choose_device
    from chainrule.training.precision import multiply_dtype

    multiply_dtype(options.precision, choose_device(options.device))
    if options.tensorboard:
        check_tensorboard()


def create_run(
    trainer: Trainer[R], asked: RunConfig, out: Path, *, overwrite: bool, given: frozenset[str] = frozenset()
) -> None:
    """Make a new run and prepare its data. An old run goes only when nothing of the new one can fail any more.

    The run is made in a folder of its directory and moved up when it is whole: a process killed at any moment leaves
    the old run, the new one, or a directory that is free to use.

    Args:
        trainer: of the kind.
        asked: what the command line says.
        out: the run directory.
        overwrite: whether a run that is there goes.
        given: the options that the user wrote, see `train_run`.

    Raises:
        FileExistsError: `out` is taken.
        ValueError, OSError: the options cannot be trained with, or the data cannot be read; `out` is as it was.
    """
    refuse_taken(out, overwrite=overwrite)
    _check_startable(training_options(asked))
    made = not out.exists()
    draft_path = out / DRAFT
    remove_folder(draft_path)  # left by a run that was killed while it prepared its data
    try:
        asked = trainer.settle(asked)
        draft = trainer.RUN.create(draft_path, asked)
        draft.config = replace(asked, facts=trainer.prepare(draft))
        draft.config = trainer.plan(draft, given)
        draft.write_config()
        trainer.batches(draft, (0, 1))
        draft.new_model(asked.training.seed)
        remove(out)
        for part in sorted(draft_path.iterdir(), key=lambda part: part.name == CONFIG):  # last: it makes it a run
            part.rename(out / part.name)
    finally:
        remove_folder(draft_path)
        if made:
            with suppress(OSError):  # not there, or not empty
                out.rmdir()


def _longer(extent: Extent) -> str:
    """What makes a run of this extent longer."""
    for name, value in asdict(extent).items():
        if value is not None:
            return f"{flag(name)} ...  (a larger total trains on)"
    return "--budget ...  (a longer total trains on)"


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
        print(dump_json(summary | figures))
        return
    again = f"{resume_command(run.path)} {_longer(run.config.extent)}"
    if result.steps_now == 0:
        print(
            f"\nnothing to do: the run has had all that it was asked for, {result.step:,} steps\n"
            f"best: {printable(told)}, at step {result.best_step:,}\n"
            f"next: {again}"
        )
        return
    early = " (stopped early: no more improvement)" if result.ended_by == "patience" else ""
    commands = [*trainer.next_steps(run), again]
    print(
        f"\n{result.step:,} steps in {format_duration(result.elapsed)}{early}\n"
        f"best: {printable(told)}, at step {result.best_step:,}\n"
        f"run:  {run.path}\n"
        f"next: {commands[0]}\n" + "\n".join(f"      {command}" for command in commands[1:])
    )

"""The training of a run, new or continued: what `fit`, `Run.resume` and `chainrule train` have in common.

The data are prepared and the options that the user left open decided in a draft, which becomes the run when it is
whole. A resumed run keeps its options, except the few that may change, and its data, which must be as they were.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields, replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError, option
from chainrule.printing import printable
from chainrule_app.printing import counted, is_url, shown, spelled_all, url_of
from chainrule_app.readers.sources import KINDS, check_path, is_path, must_gather, paths_of
from chainrule_app.tasks.baseline import compare_with_baseline
from chainrule_app.tasks.config import (
    ChosenComputation,
    Duration,
    Fingerprint,
    InitialWeights,
    RunConfig,
    facts_of,
    recorded_source,
)
from chainrule_app.tasks.remote_run import copy_to_work_in, publishing
from chainrule_app.tasks.run_directory import (
    CHECKPOINT,
    CONFIG,
    DRAFT,
    WEIGHTS,
    clear_draft,
    local_run,
    lock_run,
    refuse_taken,
    remove,
    remove_unfinished,
    task_of,
)
from chainrule_app.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from chainrule import TrainableModel
    from chainrule.training import Callback, Computation, Processes, TrainingBatches, TrainingOptions, TrainingResult


def train_run(
    task: type[Task[Any]],
    request: RunConfig,
    out: Path | None,
    given: frozenset[str],
    *,
    plain: bool = False,
    resume: bool | None = False,
    overwrite: bool = False,
    began: float | None = None,
    callbacks: "Sequence[Callback]" = (),
) -> "tuple[Task[Any], TrainingResult | None]":
    """Train a new run, or continue one; returns it, and in the first of several processes its result.

    With `resume=None` it continues the run in `out` if there is one; the first of several processes decides for all.
    `out` is the first one's where another process has None.
    """
    from chainrule.peers import ending_together

    if plain:
        request, given = task.plain(request, given)
    if request.training.device == "mps":  # what stays on the processor is measured there too
        request = replace(request, training=replace(request.training, device=str(task.device("mps"))))
    with ExitStack() as stack:
        peers = stack.enter_context(ending_together())
        named = peers.path(out)
        out, sent = named, None
        if url_of(named) is not None:
            sent = peers.after_first(lambda: stack.enter_context(publishing(named)))
            out = copy_to_work_in(named)
        before = None if resume is None else check_start(task, request, out, given, resume, overwrite)
        _announce(out if before is not None else request.sources["source"])

        from chainrule.training import Processes, train
        from chainrule_app.tracking import Publishing, make_tracker

        device = task.device((request if before is None or "device" in given else before).training.device)
        process_group = stack.enter_context(Processes.join(str(device)))
        if resume is None:
            resume = bool(process_group.agree([float((out / CONFIG).is_file())])[0])
            before = check_start(task, request, out, given, resume, overwrite)
        if process_group.first:
            stack.enter_context(lock_run(out))
        made = None
        if before is None:
            create = partial(create_run, task, request, out, overwrite=overwrite, given=given)
            made = peers.after_first(create)
        run = task.open(out) if made is None else made[0]
        if before is not None:
            if process_group.first:
                remove_unfinished(out)
            run.config = resumed_config(run, request, given, check_data=process_group.first)
            peers.after_first(partial(_prepare_again, run))
            there = [run.path / name for name in (CHECKPOINT, WEIGHTS) if (run.path / name).is_file()]
            confirm = "" if "model" in given else option("model", run.config.model)
            run.check_size(there[0] if there else None, confirm=confirm)
        network, optimiser = (run.new_model(run.config.training.seed), None) if made is None else made[1:]
        load_initial(run, network)
        batches, held_out = run.batches((process_group.rank, process_group.world))
        if process_group.first:
            parameters = sum(weight.numel() for weight in network.parameters())
            choice = [run.choice()] if before is None and run.config.chosen() else []
            model = f"{run.recipe} with {counted(parameters, 'parameter')}, in {shown(run.path)}"
            lines = [*run.introduce(), *choice, model]
            print(printable("\n".join(lines)), file=sys.stderr, flush=True)
        computation = resolve_computation(run, network, batches, process_group)
        if process_group.first and before is None and (same := run.config.chosen()):
            print(f"reproduce with: {spelled_all(same)}", file=sys.stderr, flush=True)
        options = training_options(run.config)
        options = replace(options, precision=computation.precision, device=str(process_group.device))
        with computation.applied_to(network):
            result = train(
                network, batches, held_out, options, run.path, optimiser=optimiser, resume=before is not None,
                began=began, on_start=run.write_config, on_validation=run.on_validation(),
                metric=run.validation_metric(),
                observe=run.observe(), watch=run.watch(), samples=run.training.samples,
                callbacks=[
                    *callbacks,
                    *([make_tracker(run.training.track)] if run.training.track else []),
                    *([Publishing(sent)] if sent is not None else []),
                ],
            )  # fmt: skip
        if process_group.first and result.steps_now:
            compare_with_baseline(run, network, result.elapsed)
    return run, result if process_group.first else None


def _prepare_again(run: Task[Any]) -> None:
    """Prepare the data of a run that lost them."""
    if not run.is_prepared():
        with readable(type(run), run.config) as unpacked:
            type(run)(run.path, unpacked).prepare_data()


def check_start(
    task: type[Task[Any]],
    request: RunConfig,
    out: Path,
    given: frozenset[str],
    resume: bool,
    overwrite: bool,
) -> RunConfig | None:
    """Return the config of the run to continue, None for a new one; refuse what needs no look at the data."""
    before = task.open(out).config if resume else None
    if before is None:
        task.check_asked(request, given)
        if request.training.lora_rank is not None and request.init is None:
            raise OptionError("lora_rank", f"requires {option('init')}", "there are no weights to change yet")
    _check_packages(task, request if before is None or "track" in given else before)
    if before is None:
        refuse_taken(out, overwrite=overwrite)
        for source in filter(is_path, request.sources.values()):
            for path in paths_of(source):
                check_path(path)
    return before


def _check_packages(task: type[Task[Any]], config: RunConfig) -> None:
    for package in task.NEEDS:
        if find_spec(package) is None:
            raise ValueError(f"training requires the package {package}: pip install {package}")
    if config.training.track is not None:
        from chainrule_app.tracking import check_tracker

        check_tracker(config.training.track)


def _announce(source: Any) -> None:
    """Announce the data at once: importing torch takes a second or more."""
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first
        name = "the text built into Python" if source is None else printable(shown(source))
        print(f"reading {name} …", file=sys.stderr, flush=True)


def training_options(config: RunConfig) -> "TrainingOptions":
    from chainrule.training import TrainingOptions

    names = {item.name for item in fields(TrainingOptions)}
    settings = asdict(config.duration) | asdict(config.training)
    unsettled = {
        name for name in ("batch_size", "optimiser", "learning_rate", "weight_decay") if settings[name] is None
    }
    return TrainingOptions(**{name: value for name, value in settings.items() if name in names - unsettled})


def create_run(
    task: type[Task[Any]],
    request: RunConfig,
    out: Path,
    *,
    overwrite: bool,
    given: frozenset[str] = frozenset(),
) -> "tuple[Task[Any], TrainableModel, Optimizer]":
    """Make a new run in a draft folder, with its data, and return it with its model and optimiser.

    It replaces an old run only when it is complete.
    """
    from chainrule.devices import multiply_dtype, process_shard

    refuse_taken(out, overwrite=overwrite)
    options = training_options(request)  # checks them
    multiply_dtype(options.precision, task.device(options.device))  # and this, that the machine supports them
    is_new = not out.exists()
    draft_path = out / DRAFT
    clear_draft(out, keep_answers=True)  # left by a run that was killed while it prepared its data
    try:
        with readable(task, request) as unpacked:
            unpacked = task.resolve_reading(unpacked)
            task.check_config(unpacked)
            draft_path.mkdir(parents=True, exist_ok=True)
            draft = task(draft_path, unpacked)
            draft.write_config()
            facts = draft.prepare_data()
            draft.config = replace(unpacked, facts=facts_of(task.Facts, facts))
            if request.init is not None:  # it leaves no option of the model open
                given |= {item.name for item in fields(unpacked.options)}
            draft.config, timed = draft.plan(given)
        sources = {name: recorded_source(source) for name, source in request.sources.items()}
        draft.config = replace(draft.config, sources=sources)
        if draft.config.training.weight_decay is None:
            decay = training_options(draft.config).weight_decay
            draft.config = replace(draft.config, training=replace(draft.config.training, weight_decay=decay))
        draft.write_config()
        draft.batches(process_shard())  # the batch is large enough for all processes
        model, optimiser = draft.trainable(timed)
        options.check_model(model)
        remove(out)
        for part in sorted(draft_path.iterdir(), key=lambda part: part.name == CONFIG):  # last: it makes it a run
            part.rename(out / part.name)
        return task(out, draft.config), model, optimiser
    finally:
        clear_draft(out, keep_answers=isinstance(sys.exception(), KeyboardInterrupt))
        if is_new:
            with suppress(OSError):  # not there, or not empty
                out.rmdir()


def resolve_computation(
    run: Task[Any], network: "TrainableModel", batches: "TrainingBatches", process_group: "Processes"
) -> "Computation":
    """Return the computation of the config, else choose it by rule and options and record it."""
    from chainrule.training import Computation

    recorded, most = run.config.computation, 4 * (os.cpu_count() or 1)
    if recorded is not None:
        if recorded.threads > most and process_group.first:
            print(f"{most} threads instead of the {recorded.threads} that the run began with", file=sys.stderr)
        return Computation(min(recorded.threads, most), recorded.precision, recorded.backend)
    requested = run.config.training
    if requested.threads is not None and requested.threads > most:
        raise OptionError("threads", f"expected at most {most} on this machine, got {requested.threads}")
    chosen, reason = Computation.choose(
        network, batches.at(0), process_group.device,
        threads=requested.threads, precision=requested.precision, backend=requested.backend,
    )  # fmt: skip
    if process_group.first:
        print(reason, file=sys.stderr, flush=True)
        run.config = replace(run.config, computation=ChosenComputation(**asdict(chosen)))
        run.write_config()
    return chosen


def resumed_config(run: Task[Any], request: RunConfig, given: frozenset[str], *, check_data: bool) -> RunConfig:
    """Return the config of a resumed run with the user's changes, without writing it."""
    if changed := _changed(_values(run.config), _values(request), given, run.FREE):
        raise OptionError(
            "resume",
            f"{run.path} was started with other options: {'; '.join(changed)}",
            f"leave them out, or start another run with another {option('out')}",
        )
    sources = {name: run.config.sources[name] if source is None else source for name, source in request.sources.items()}
    for name in run.SOURCES:
        if check_data and (name == "source" or sources[name] is not None):
            _compare(run, sources[name], name)
    free = {name: getattr(request.training, name) for name in run.FREE if name in given}
    extended = {item.name for item in fields(Duration)} & given
    return replace(
        run.config,
        sources=sources,
        training=replace(run.config.training, **free),
        duration=request.duration if extended else run.config.duration,
    )


def _values(config: RunConfig) -> dict[str, Any]:
    return {"model": config.model, **asdict(config.data), **asdict(config.options), **asdict(config.training)}


def _changed(old: dict[str, Any], new: dict[str, Any], given: frozenset[str], free: frozenset[str]) -> list[str]:
    """List the options of a run that the user set to other values, except those that are free."""
    return [
        f"{option(name)} was {old[name]} and is {value}"
        for name, value in new.items()
        if name in given and name in old.keys() - free and old[name] != value
    ]


def _compare(run: Task[Any], path: str | None, name: str) -> None:
    """Refuse changed data; missing data do not matter once they are prepared."""
    began: Fingerprint | None = getattr(run.facts, name)
    if path is not None and run.is_prepared() and not _exists(path):
        return
    with readable(type(run), replace(run.config, sources={name: path})) as unpacked:
        now = Fingerprint(**run.fingerprint(unpacked.sources[name]))
    if began is None or (began.bytes, began.sha256) != (now.bytes, now.sha256):
        raise OptionError(
            "resume",
            f"{option(run.SOURCES[name].argument(name))} changed since the run began: "
            f"it was {_describe(began)} and is {_describe(now)}",
            f"restore it, or start another run with another {option('out')}",
        )


def _exists(path: str) -> bool:
    if not is_url(path):
        return Path(path).exists()
    try:
        return bool(paths_of(path))
    except (OSError, ValueError):  # such as one that needs a signature, which no run keeps
        return False


def _describe(source: Fingerprint | None) -> str:
    return "none" if source is None else f"{source.name} ({source.bytes} bytes, SHA-256 {source.sha256[:12]}…)"


_OF_THE_DATA = frozenset({"validation_fraction"})  # reading options that may differ for the new data


def started_from(task: "type[Task[Any]]", request: RunConfig, path: Path, given: frozenset[str]) -> RunConfig:
    """Return the config of a run with another run's weights: its reading, model and size."""
    if (name := task_of(path)) not in (None, task.name):
        raise OptionError(
            "init", f"{path} is a run of the task {name}, but the data are for {task.name}", f"add {option('task')}"
        )
    old = task.open(path)
    weights = local_run(path) / WEIGHTS
    if not weights.is_file():
        raise OptionError("init", f"{path} has no weights yet", "train that run first")
    old_values = {"model": old.config.model, **asdict(old.data), **asdict(old.config.options)}
    old_values |= old.options_in_weights()
    if changed := _changed(old_values, _values(request), given, _OF_THE_DATA):
        raise OptionError("init", f"{path} was trained with other options: {'; '.join(changed)}", "leave them out")
    own = {name: getattr(request.data, name) for name in _OF_THE_DATA if hasattr(request.data, name)}
    return replace(
        request,
        data=replace(old.data, **own),
        model=old.config.model,
        options=old.config.options,
        training=replace(request.training, **old.options_in_weights()),
        init=InitialWeights(url_of(path) or str(path), sha256(weights.read_bytes()).hexdigest()),
    )


def load_initial(run: "Task[Any]", network: "nn.Module") -> None:
    """Load the initial weights of a run that has taken no steps yet."""
    from chainrule.training import load_weights

    init = run.config.init
    if init is None or (run.path / CHECKPOINT).is_file():
        return
    weights = local_run(init.run) / WEIGHTS
    if not weights.is_file() or sha256(weights.read_bytes()).hexdigest() != init.sha256:
        raise OptionError(
            "init", f"{weights} is missing, or changed since this run began", "restore it, or start again"
        )
    load_weights(weights, network)


@contextmanager
def readable(task: "type[Task[Any]]", config: RunConfig) -> Iterator[RunConfig]:
    """Open sources that are not one file each, which a reader takes as they are, during the block."""
    named = {name: path for name, path in config.sources.items() if is_path(path)}
    if not any(must_gather(path, KINDS.get(task.name, "files")) for path in named.values()):
        yield replace(config, sources=config.sources | {name: paths_of(path)[0] for name, path in named.items()})
        return
    from chainrule_app.inputs import Inputs
    from chainrule_app.readers.record_keys import keys_of

    with Inputs(task.name, keys=keys_of(config.data)) as inputs:
        opened = {name: inputs.opened(path, name) for name, path in named.items()}
        data = replace(config.data, **inputs.options) if inputs.options else config.data
        yield replace(config, sources=config.sources | opened, data=data)

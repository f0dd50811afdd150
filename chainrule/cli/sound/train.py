"""`chainrule train sounds/`: sounds become a run directory."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from chainrule.cli.command_line import flag, quoted
from chainrule.cli.ladder import Ladder
from chainrule.cli.options import DATA, MODEL, RUN, TRAINING, RunFlags
from chainrule.cli.sound.sparkline import sparkline
from chainrule.cli.trainer import Shard, Trainer, train_run
from chainrule.runs import run as run_directory
from chainrule.runs.config import RunConfig
from chainrule.runs.sound import USUAL_LEVELS, SoundData, SoundRun, SoundTraining, WaveNetOptions

if TYPE_CHECKING:
    from chainrule.training import TrainingBatches, ValidationBatches
    from chainrule.training.loop import TrainingResult
    from chainrule.training.validation import OnValidation

_LADDER = Ladder("samples", ({"channels": 32, "skip_channels": 96}, {"channels": 20, "skip_channels": 64}), passes=1)
PREVIEW = "preview.wav"
_PREVIEW_SECONDS = 0.5
_VALIDATION_ROWS = 8


def train(
    data: Path | None = None,
    /,
    *,
    run: Annotated[RunFlags, Parameter(name="*", group=RUN)] = RunFlags(),
    validation: Annotated[Path | None, Parameter(group=DATA)] = None,
    sound: Annotated[SoundData, Parameter(name="*", group=DATA)] = SoundData(),
    options: Annotated[WaveNetOptions, Parameter(name="*", group=MODEL)] = WaveNetOptions(),
    training: Annotated[SoundTraining, Parameter(name="*", group=TRAINING)] = SoundTraining(),
    given: Annotated[frozenset[str], Parameter(parse=False)],
) -> int:
    """Train a WaveNet on sounds. Needs the extra sound: pip install 'chainrule[sound]'.

    Args:
        data: A folder of sounds (wav, flac, ogg, mp3, aif), a tar or zip archive of them, or one file.
        validation: Sounds to hold out in place of some of DATA.
    """
    if data is None and not run.resume:
        raise ValueError("DATA: expected sounds to train on, got none")
    asked = RunConfig(
        sources={"source": str(data), "validation": None if validation is None else str(validation)},
        data=sound,
        facts={},
        model="wavenet",
        options=options,
        extent=run.extent("10m"),
        training=training,
    )
    out = run.out or Path("runs") / f"{data.resolve().name.partition('.')[0] if data else 'sound'}-wavenet"
    return train_run(SoundTrainer(), asked, out, run, given)


class SoundTrainer(Trainer[SoundRun]):
    """How sounds are prepared and trained on."""

    RUN = SoundRun
    LADDERS: ClassVar[dict[str, Ladder]] = {"wavenet": _LADDER}

    def settle(self, asked: RunConfig) -> RunConfig:
        levels = asked.data.levels or USUAL_LEVELS[asked.data.law]
        return replace(asked, data=replace(asked.data, levels=levels))

    def prepare(self, draft: SoundRun) -> dict[str, Any]:
        from chainrule.data.sounds import prepare_sounds

        data, sources = draft.data, draft.config.sources
        assert sources["source"] is not None
        try:
            sounds = prepare_sounds(
                sources["source"],
                draft.path / run_directory.DATA,
                rate=data.rate,
                law=data.law,
                levels=data.levels or USUAL_LEVELS[data.law],
                labels=data.labels,
                label_pattern=data.label_pattern,
                sequences=data.sequences,
                longest_clip=draft.training.chunk_length,
                validation=sources["validation"],
                validation_fraction=data.validation_fraction,
                skip_bad=data.skip_bad,
                seed=draft.training.seed,
            )
        except ValueError as error:
            name, colon, rest = str(error).partition(":")
            known = {item.name for item in fields(SoundData)}  # the user wrote the flag
            raise ValueError(f"{flag(name)}{colon}{rest}" if name in known else str(error)) from None
        return sounds.manifest

    def fingerprint(self, path: str | None) -> dict[str, Any]:
        from chainrule.data.sounds import Collection

        assert path is not None
        return Collection(path).fingerprint()

    def is_prepared(self, run: SoundRun) -> bool:
        return (run.path / run_directory.DATA / "sounds.json").is_file()

    def batches(self, run: SoundRun, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data import StreamBatches, stream_evaluation
        from chainrule.data.sounds import ClipBatches, clip_evaluation

        sounds, training = run.sounds(), run.training
        rows, length, seed = training.batch_size, training.chunk_length, training.seed
        if run.config.facts["sequences"] == "stream":
            return (
                StreamBatches(sounds.train, rows, length, seed, shard),
                lambda: stream_evaluation(sounds.valid, _VALIDATION_ROWS, length),
            )
        return (
            ClipBatches(sounds.train, rows, length, sounds.train_labels, seed, shard),
            lambda: clip_evaluation(sounds.valid, _VALIDATION_ROWS, length, sounds.valid_labels),
        )

    def introduce(self, run: SoundRun) -> Iterable[str]:
        facts = run.config.facts
        yield from found(facts)
        model = run.new_model(0)
        seen = model.receptive_field
        yield f"each sample is predicted from the {seen:,} before it, {1000 * seen / run.rate:.0f} ms"

    def on_validation(self, run: SoundRun) -> "OnValidation":
        def preview(trained: Any, step: int, seconds: float) -> str:
            import torch

            from chainrule.data.sounds import write_wav
            from chainrule.decoding.draw_for import draw_for

            device = next(trained.parameters()).device
            label = None if not run.labels else torch.tensor([step % len(run.labels)], device=device)
            length = max(round(min(_PREVIEW_SECONDS, mean_seconds(run.config.facts)) * run.rate), 1)
            generator = torch.Generator(device).manual_seed(step)
            drawn = draw_for(trained.stream(1, label, generator=generator), length, seconds)
            amplitudes = run.levels.decode(drawn[0].cpu().numpy())
            write_wav(run.path / PREVIEW, amplitudes, run.rate)
            name = "" if label is None else f"{run.labels[int(label)]}: "
            return f"{name}{sparkline(amplitudes)} {PREVIEW}"

        return preview

    def summary(self, run: SoundRun, result: "TrainingResult") -> tuple[dict[str, Any], str]:
        best, samples = result.best, run.config.facts["valid"]["samples"]
        part = "" if best.elements >= samples else f"first {best.elements:,} of {samples:,} samples of the "
        return (
            {"bits_per_sample": best.bits_per_element},
            f"{best.bits_per_element:.4f} bits per sample on the {part}held-out sounds",
        )

    def next_steps(self, run: SoundRun) -> Sequence[str]:
        path, label = quoted(run.path), f" --label {quote(run.labels[0])}" if run.labels else ""
        return [
            f"chainrule sample {path} -n 3 --out new.wav{label}",
            f"chainrule score {path} {quote(str(run.config.sources['source']))} --sort",
        ]


def mean_seconds(facts: dict[str, Any]) -> float:
    """How long a clip of those to train on is."""
    return float(facts["train"]["samples"] / facts["train"]["clips"] / facts["rate"])


def found(facts: dict[str, Any]) -> Iterable[str]:
    """What preparing sounds found, line by line."""
    train, valid, rate = facts["train"], facts["valid"], facts["rate"]
    law = "μ-law" if facts["law"] == "mu" else "linear"
    yield (
        f"{facts['source']['name']}, read as sound, {facts['sequences']}: {train['clips']:,} "
        f"({train['samples'] / rate:,.1f} s) to train on, {valid['clips']:,} ({valid['samples'] / rate:,.1f} s) held "
        f"out, at {rate:,} Hz in {facts['levels']:,} {law} levels"
    )
    if facts["labels"]:
        some = ", ".join(facts["labels"][:12]) + (", ..." if len(facts["labels"]) > 12 else "")
        yield f"{len(facts['labels'])} labels: {some}"
    others = {found: count for found, count in facts["rates"].items() if int(found) != rate}
    if others:
        yield "resampled: " + ", ".join(f"{count:,} files of {int(found):,} Hz" for found, count in others.items())
    if facts["silent"]:
        yield f"silent: {facts['silent']:,} clips have one amplitude only"
    if facts["clipped"]:
        yield f"clipped: {facts['clipped']:,} samples are beyond full scale"
    for bad in facts["skipped"]:
        yield f"skipped: {bad['reason']}"

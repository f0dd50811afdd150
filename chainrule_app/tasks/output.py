"""Pages, figures, images, sounds and music on disk, each written whole or not at all."""

import io
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.files import write_bytes, write_text
from chainrule.option_error import OptionError
from chainrule_app.heavy import np
from chainrule_app.printing import counted, quoted
from chainrule_app.readers.sources import is_path
from chainrule_app.results import Report, Result
from chainrule_app.tasks.run_directory import REPORT

if TYPE_CHECKING:
    import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from chainrule_app.pages.attention_page import AttentionExample
    from chainrule_app.pages.page import Page
    from chainrule_app.tasks.task import Task


def checked_page(out: Path | None, run: Path, name: str = REPORT) -> Path:
    """Return the page to write: `out`, or a file in the run directory."""
    page = run / name if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):
        raise OptionError("out", f"expected a name that ends in .html, got {page}")
    if page.is_dir():
        raise OptionError("out", f"{page} is a directory", "name a file in it")
    if not page.parent.is_dir():
        raise OptionError("out", f"there is no directory {page.parent}", "create it first")
    return page


def write_page(page: Path, content: str) -> None:
    try:
        write_text(page, content)
    except OSError as error:
        raise OptionError("out", f"{page} cannot be written ({error.strerror})", "name another file") from None


def inspect_again(run: "Task[Any]", file: str | None = None, **options: Any) -> str:
    """Return the command that makes a page again, without the options that are None."""
    flags = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join(
        [
            "chainrule inspect",
            quoted(run.path),
            *([] if file is None else [quoted(Path(file)) if is_path(file) else "DATA"]),
            *flags,
        ]
    )


def inside(run: "Task[Any]") -> str:
    """Return the title of a page about a run."""
    return f"Inside {run.path.name}"


def page_report(
    run: "Task[Any]", content: "Page", figures: dict[str, Any], lines: Iterable[str], *, about: str = ""
) -> Report:
    """Build a report from a page, figures and lines; `about` describes the model, by default the page's lead."""
    facts = {"run": str(run.path), "model": run.config.model, "recipe": run.recipe}
    return Report(facts | figures, (f"{run.path}: {about or content.lead}", *lines), str(content))


def save_figure(figure: "Figure", path: Path) -> None:
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower() or "png", dpi=120)
    write_bytes(path, content.getvalue())


def attention_report(
    run: "Task[Any]", model: "nn.Module", examples: "Sequence[AttentionExample]", *, looks_at: str, command: str
) -> Report:
    from chainrule_app.pages.attention_figures import attention_focus
    from chainrule_app.pages.page import Page, Section, parts_section
    from chainrule_app.tasks.parts import parts_of, parts_table

    parts = parts_of(model)
    figures: dict[str, Any] = {"parameters": parts, "attention": None}
    finding = f"none: all {looks_at} are read into one vector, from which the decoder begins"
    if weights := [example.weights for example in examples if example.weights is not None]:
        focus = attention_focus(weights)
        figures["attention"] = {"greatest": focus.greatest, "entropy_bits": focus.entropy, "even_bits": focus.even}
        finding = (
            f"over {counted(focus.queries, 'symbol')} written, "
            f"the greatest weight is {focus.greatest:.2f} on average and the "
            f"entropy {focus.entropy:.2f} bits; even weights over all {looks_at} would have {focus.even:.2f} bits"
        )
    attention = Section("Attention", [f"{finding[:1].upper()}{finding[1:]}."], "attention")
    described = f"{run.recipe} with {counted(sum(parts.values()), 'parameter')}"
    sections = [parts_section(parts), attention, *(example.section for example in examples)]
    symbols = sum(len(example.written) for example in examples)
    surprise = sum(sum(example.nats) for example in examples) / max(symbols, 1)
    figures |= {"nats_per_symbol": surprise, "rows": [example.figures for example in examples]}
    lines = [*parts_table(parts), f"attention: {finding}", f"surprise: {surprise:.4f} nats per symbol"]
    return page_report(run, Page(f"Inside {run.path}", described, sections, command), figures, lines)


_IMAGES, _SOUNDS, _MUSIC = "samples.png", "sample.wav", "sample.mid"


def write_images(result: Result, out: Path | None) -> list[tuple[Path, str]]:
    """Write images as a grid, or a single one as it is; returns the file and a few words about it, per image."""
    from chainrule_app.readers.images.source import grid, png

    file = Path(result.hints.get("file", _IMAGES)) if out is None else out
    images = np.stack([np.atleast_3d(image).transpose(2, 0, 1) for image in result.values])
    if len(images) == 1:
        content = images[0, 0] if images.shape[1] == 1 else images[0].transpose(1, 2, 0)
    else:
        content = grid(images, result.hints.get("columns"))
    write_bytes(file, png(content))
    return [(file, counted(len(images), "image"))] * len(images)


def channels_last(image: Any) -> Any:
    return image[0] if len(image) == 1 else image.transpose(1, 2, 0)


def write_sounds(result: Result, out: Path | None) -> list[tuple[Path, str]]:
    """Write each sound to a wav file; returns the file and a few words about it, per sound."""
    from chainrule_app.readers.sounds.sound_file import write_wav

    rate = result.about["rate"]

    def write(path: Path, sound: Any) -> str:
        write_wav(path, sound, rate)
        return f"{loudness_line(sound)}  {len(sound) / rate:.2f} s"

    return _write_apart(result, out or Path(_SOUNDS), write)


def write_music(result: Result, out: Path | None) -> list[tuple[Path, str]]:
    """Write each piano roll to a MIDI file; returns the file and a few words about it, per piece."""
    playing = {name: result.about[name] for name in ("frames_per_quarter", "quarters_per_minute")}
    return _write_apart(result, out or Path(_MUSIC), lambda path, roll: write_piece(path, roll, playing))


def write_piece(path: Path, roll: Any, playing: dict[str, int]) -> str:
    """Write a piano roll (T, 88) to a MIDI file, and describe it in a few words."""
    from chainrule_app.readers.music import midi_file

    write_bytes(path, midi_file(roll, **playing))
    struck = np.diff(np.asarray(roll, np.int8), axis=0, prepend=0) > 0
    seconds = len(roll) / playing["frames_per_quarter"] * 60 / playing["quarters_per_minute"]
    return f"{counted(int(struck.sum()), 'note')}  {seconds:.1f} s"


def _write_apart(result: Result, file: Path, write: Callable[[Path, Any], str]) -> list[tuple[Path, str]]:
    """Write each value of the main column to a separate file, numbered if there are several."""
    written, values = [], result.values
    for number, (record, value) in enumerate(zip(result, values, strict=True), 1):
        path = file if len(values) == 1 else file.with_stem(f"{file.stem}-{number}")
        label = f"{record['label']}  " if record.get("label") else ""
        written.append((path, label + write(path, value)))
    return written


def loudness_line(amplitudes: "npt.ArrayLike", width: int = 60) -> str:
    """Draw the loudness of a sound as `width` bars; each step up is 6 decibels, twice the amplitude.

    >>> loudness_line([0.0, 0.01, 0.3, -0.9], width=4)
    '▁▂▇█'
    """
    parts = [np.abs(part) for part in np.array_split(np.asarray(amplitudes), width) if len(part)]
    return sparkline([math.log2(max(float(part.max()), 2.0**-10)) for part in parts], -len(_BARS), 0)


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw a bar for each value, clipped to low and high.

    >>> sparkline([0.0, 1.0, 2.0, 3.0, 9.0], 0.0, 3.0)
    '▁▃▆██'
    """
    step = (high - low) / len(_BARS) or 1.0
    return "".join(_BARS[min(max(int((value - low) / step), 0), len(_BARS) - 1)] for value in values)

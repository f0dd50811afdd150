"""Inside a trained model of a text: figures, verdicts and a page."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from chainrule.option_error import OptionError, option
from chainrule.printing import one_line
from chainrule.ranges import Range
from chainrule_app.pages.clipping import clipping
from chainrule_app.printing import aligned, counted
from chainrule_app.readers.text import name_of
from chainrule_app.results import Report
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.output import inspect_again, page_report

if TYPE_CHECKING:
    from torch import Tensor, nn

    from chainrule.data import Vocabulary
    from chainrule.diagnostics import Inspection
    from chainrule_app.pages.clipping import Clipping
    from chainrule_app.pages.read_text import ReadRow, ReadText
    from chainrule_app.tasks.text.task import TextTask

MOST_SYMBOLS = 1 << 16


@dataclass(frozen=True)
class TextInspection(CheckedOptions):
    """Look inside a trained text model: the memory of a recurrence, the attention heads of a Transformer.

    For a recurrence, shows how far gradients and inputs reach, and the state of the gates; for a Transformer, the kind
    of each head, its attention, and the size of its cache; for both, the surprise of each symbol. Prints a table, with
    a verdict per recurrent layer, and writes a page with plots (HTML, one file, needs no network). Reads the beginning
    of the run's held-out text or of DATA, in rows that each start from the initial state; in a run trained on lines,
    each row is a line. Shows the first of several averaged models. Recurrences require matplotlib: pip install
    matplotlib.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Text to read; the held-out text by default; - is standard input.",
    }

    rows: Annotated[int, Range(1, 256)] = 8
    """Number of rows to read."""
    steps: Annotated[int, Range(2, 10_000)] = 200
    """Symbols per row, over which gradients are followed."""


def first_network(model: "nn.Module") -> "nn.Module":
    """Return the network of a mixture, or the first member of an ensemble; any other model as it is."""
    from chainrule.models import CalibratedMixture, Ensemble

    while isinstance(model, Ensemble | CalibratedMixture):
        model = model.parts[0]
    return model


def inspect_text(run: "TextTask", file: str | None, options: TextInspection, *, seed: int) -> Report:
    rows, steps = options.rows, options.steps
    if rows * steps > MOST_SYMBOLS:
        raise OptionError(
            "rows", f"expected rows × {option('steps')} of at most {MOST_SYMBOLS} symbols, got {rows * steps}"
        )
    command = inspect_again(run, file, rows=rows, steps=steps, seed=seed)
    from chainrule.models import RecurrentLM, TransformerLM

    trained_model = first_network(run.model())
    if isinstance(trained_model, TransformerLM):
        from chainrule_app.tasks.text.head_inspection import inspect_heads

        return inspect_heads(run, trained_model, file, options, command=command)
    from chainrule.diagnostics import inspect_recurrence
    from chainrule.figures import new_figure
    from chainrule_app.pages.page import Page
    from chainrule_app.pages.read_text import ReadText
    from chainrule_app.pages.recurrence_page import mean_surprise, reading_line, recurrence_sections

    if not isinstance(trained_model, RecurrentLM):
        expected = "a recurrence (lstm, gru or rnn) or a Transformer to inspect"
        raise ValueError(f"{run.path}: expected {expected}, got {run.config.model}")
    new_figure()  # where matplotlib is missing, that is said before any work is done
    x, lengths, name = read_window(run, file, rows, steps)
    read = ReadText(name, run.config.data.level, *read_rows(run, x, lengths))
    try:
        inspection = inspect_recurrence(trained_model, x, lengths, seed=seed)
    except ValueError as error:
        raise ValueError(f"{run.path}: {str(error).removeprefix('module: ')}") from None
    trained = clipping(run.metrics(), run.config.training.clip_norm)
    sections = recurrence_sections(inspection, read, trained)
    lead = f"{_model_line(run)}; {reading_line(read, inspection.flow.lengths, mean_surprise(inspection))}"
    content = Page(f"Inside {run.path}", lead, sections, command)
    figures = inspection_figures(inspection, read, x, run.vocabulary, trained)
    return page_report(run, content, figures, _table(inspection, read, trained), about=_model_line(run))


def read_window(run: "TextTask", file: str | None, rows: int, steps: int) -> "tuple[Tensor, Tensor | None, str]":
    """Return the rows, their lengths, and a description of their source."""
    from chainrule_app.tasks.text.windows import file_window, own_window

    if file is None:
        x, lengths, part = own_window(run, rows, steps)
        facts = run.facts
        source = facts.validation if part == "held-out" and facts.validation else facts.source
        return x, lengths, f"{part} text of {source.name}"
    x, lengths = file_window(run.vocabulary, run.config.data.reading, file, rows, steps)
    return x, lengths, name_of(file)


def read_rows(run: "TextTask", x: "Tensor", lengths: "Tensor | None") -> "tuple[list[ReadRow], int]":
    """Return the text of each row, and the number of elements that training never saw."""
    from chainrule_app.pages.read_text import ReadRow
    from chainrule_app.tasks.text.spans import symbol_spans

    counts = [x.shape[1]] * len(x) if lengths is None else lengths.tolist()
    rows = [row[:count].numpy() for row, count in zip(x, counts, strict=True)]
    unknown = sum(row.tolist().count(run.vocabulary.unknown) for row in rows)
    return [ReadRow(*symbol_spans(run.vocabulary, row)) for row in rows], unknown


def row_figures(vocabulary: "Vocabulary", x: "Tensor", bits: "Tensor", lengths: "Tensor") -> list[dict[str, Any]]:
    """Return the symbols of each row, as numbers and as text, and the surprise of each."""
    return [
        {
            "symbols": row[:length].tolist(),
            "text": list(map(vocabulary.token, row[:length].tolist())),
            "bits": surprise[:length].tolist(),
        }
        for row, surprise, length in zip(x, bits, lengths.tolist(), strict=True)
    ]


def _model_line(run: "TextTask") -> str:
    options = run.config.options
    size = f"{counted(options.num_layers, 'layer')} with {counted(options.hidden_size, 'unit')}"
    return f"{run.config.model} of {size}{inspected_part(run)}"


def inspected_part(run: "TextTask") -> str:
    """Name the inspected network of a recipe, in brackets; empty for a plain model."""
    members = run.config.options.num_members
    if members == 1 and not run.training.kneser_ney_order:
        return ""
    return f" ({f'network 1 of {members}' if members > 1 else 'the network'} in {run.recipe})"


def _table(inspection: "Inspection", read: "ReadText", trained: "Clipping | None") -> Iterable[str]:
    from chainrule_app.pages.recurrence_page import layer_table, mean_surprise, reading_line, remarks

    names = (f"layer {number}" for number in range(1, len(inspection.layers) + 1))
    rows = [["", *names], *([figure.name, *values] for figure, values in layer_table(inspection))]
    reading = reading_line(read, inspection.flow.lengths, mean_surprise(inspection))
    yield f"{one_line(reading)}\n"
    yield "\n".join(aligned(rows, left=range(len(rows[0])))) + "\n"
    for number, layer in enumerate(inspection.layers, 1):
        yield f"layer {number}: {layer.verdict.sentence} [{layer.verdict.rule}]"
    for line in remarks(inspection, read):
        yield one_line(line)
    if trained is not None:
        yield f"Clipping: {trained.sentence()}"


def inspection_figures(
    inspection: "Inspection", read: "ReadText", x: "Tensor", vocabulary: "Vocabulary", trained: "Clipping | None"
) -> dict[str, Any]:
    """Return all figures except unit traces, with null for non-finite numbers. x: (B, T) symbols."""
    from chainrule_app.pages.recurrence_page import mean_surprise

    flow, surprise = inspection.flow, inspection.surprise
    assert surprise is not None
    clipped = None
    if trained is not None:
        clipped = {name: getattr(trained, name) for name in ("limit", "steps", "share", "factor")}
        clipped["logged"] = len(trained.logged_steps)
    figures = {
        "text": read.name,
        "elements": int(flow.lengths.sum()),
        "unknown": read.unknown,
        "bits_per_element": mean_surprise(inspection),
        "nonfinite": [{"row": row, "step": step} for row, step in flow.nonfinite],
        "layers": [_layer(inspection, index) for index in range(len(inspection.layers))],
        "clipping": clipped,
        "rows": row_figures(vocabulary, x, surprise, flow.lengths),
    }
    return {name: _finite(value) for name, value in figures.items()}


def _layer(inspection: "Inspection", index: int) -> dict[str, Any]:
    flow = inspection.flow
    influence = {"influence": flow.influence[index], "influence_perturbed": flow.influence_perturbed[index]}
    return asdict(inspection.layers[index]) | influence


def _finite(value: Any) -> Any:
    from torch import Tensor

    match value:
        case float():
            return value if math.isfinite(value) else None
        case Tensor():
            return _finite(value.tolist())
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list():
            return [_finite(part) for part in value]
    return value

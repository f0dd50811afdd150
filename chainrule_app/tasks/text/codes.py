"""Models of lines with a code: likelihood bounds, samples, and the information that the code gives of a line."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from chainrule.decoding import greedy
from chainrule.diagnostics import active_units
from chainrule.models import SentenceVAE
from chainrule.training import bits
from chainrule_app.pages.page import Table
from chainrule_app.results import Column, Form, Report, Result
from chainrule_app.tasks.codes import BoundMeter, code_report, error_words, errors, traversals_of
from chainrule_app.tasks.display import flag
from chainrule_app.tasks.output import inspect_again
from chainrule_app.tasks.preview import OnValidation
from chainrule_app.tasks.text.inspection import TextInspection
from chainrule_app.tasks.text.preparing import own_window
from chainrule_app.tasks.text.rows import Per, Row, TextScoring, expected_nats, scored_per, size_of_text, surprise
from chainrule_app.tasks.text.sampling import TextSampling, batched_lines, texts_result

if TYPE_CHECKING:
    from chainrule_app.tasks.text.task import TextTask

_LOOKED_AT = 512  # held-out lines whose codes are
_SHOWN = 3
_PAIRS = 12  # lines that are shown with their reconstructions
_RANGES = 24  # of positions
_LOGITS = 1 << 24  # held at a time
_UNFIT = {"prompt": "", "temperature": 1.0, "top_k": None, "top_p": None}  # options of other models, as not given


def score_by_bounds(run: "TextTask", data: str | Sequence[str], options: TextScoring, *, device: str) -> Result:
    """Score lines of a file, or single-line texts, by bounds."""
    if options.per == "element":
        raise ValueError("--per element: the bound covers a whole line: use --per line")
    if options.adapt or options.adapt_rate is not None:
        raise ValueError(f"--adapt: a {run.config.model} cannot learn while it reads: leave it out")
    model, expected, unknown = run.code_model(device, "score"), expected_nats(run), run.vocabulary.unknown
    line, text = Column("line"), Column("text")
    columns = (line, *_COLUMNS, text) if isinstance(data, str) else (text, *_COLUMNS)

    def result(per: Per, form: Form = "table") -> Result:
        total, bounds = Row(), BoundMeter(model, options.samples)
        basis = replace(run.basis, samples=bounds.samples)

        def rows() -> Iterator[Sequence[Any]]:
            for lines, x, lengths in batched_lines(run, data, ends=True):
                for (line, text, ids), measured in zip(lines, bounds.measure(x, lengths), strict=True):
                    nats, elements = measured[0], len(ids)
                    unseen = 0 if unknown is None else int((ids == unknown).sum())
                    total.read(nats, elements, unseen, size_of_text(text))
                    if per == "line":
                        line_text, excess = text.removesuffix("\n"), surprise(nats, elements, expected)
                        row = (*measured, excess, elements, bits(nats) / elements)
                        yield (line, *row, line_text) if isinstance(data, str) else (data[line - 1], *row)
            total.standard_error = bounds.standard_error

        def summary() -> dict[str, Any]:
            figures = {"nats_at_most": total.nats, "elements": total.elements} | total.text_figures()
            return bounds.figures("line", basis) | {
                f"{name}_at_most" if name.startswith("bits") else name: value for name, value in figures.items()
            }

        return total.scored(
            columns if per == "line" else (),
            rows(),
            basis,
            data,
            summary=summary,
            rank={"excess": "excess", "bits": "bits_per_element_at_most", "nats": "nats_at_most"}[options.by],
            form=form,
            views={name: partial(result, name) for name in ("line", "file")},
        )

    return scored_per(options.per, data, result)


_COLUMNS = (
    *BoundMeter.COLUMNS,
    Column("excess", 2),
    Column("elements", shown=False),
    Column("bits_per_element_at_most", shown=False),
)


def sample_sentences(run: "TextTask", n: int, options: TextSampling, *, seed: int, device: str) -> Result:
    """Draw a code for each of n lines, and the line from it."""
    for name, default in _UNFIT.items():
        if getattr(options, name) != default:
            raise ValueError(f"{flag(name)}: a {run.config.model} draws the whole line from a code: leave it out")
    model = run.code_model(device, "sample")
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)

    def rows() -> Iterator[Sequence[Any]]:
        for ids in model.sample(n, generator).tolist():
            yield "", *text_of(run, ids[: options.length])

    return texts_result(run, rows(), seed, form="lines")


def sentence_preview(run: "TextTask") -> OnValidation:
    def preview(trained: Any, step: int, seconds: float) -> str:
        generator = torch.Generator(next(trained.parameters()).device).manual_seed(step)
        return "\n".join(text_of(run, ids)[0] for ids in trained.sample(_SHOWN, generator).tolist())

    return preview


def held_out(run: "TextTask") -> tuple[Tensor, Tensor]:
    """Return held-out lines (N, T), cut as in training, and their lengths."""
    x, lengths, _ = own_window(run, _LOOKED_AT, run.training.line_length)
    assert lengths is not None
    return x, lengths


def text_of(run: "TextTask", ids: list[int]) -> tuple[str, int]:
    """Decode symbols up to the end of the line; also return their number, including the end."""
    ends = run.vocabulary.eos
    read = ids[: ids.index(ends)] if ends in ids else ids
    return run.vocabulary.decode(read), min(len(read) + 1, len(ids))


def inspect_codes(run: "TextTask", data: str | None, options: TextInspection, *, seed: int) -> Report:
    if data is not None or options.property is not None:
        what = data if data is not None else f"--property {options.property}"
        raise ValueError(f"inspect reads the codes of the run's held-out lines, got {what}: leave it out")
    model = run.code_model("cpu", "inspect")
    x, lengths = held_out(run)
    use = active_units(model, x, lengths=lengths)
    ranges = _ranges(int(lengths.max()))
    own, other = _nats(model, x, lengths, ranges)
    codes = use.codes[:_PAIRS]
    texts = [text_of(run, row)[0] for row in x[:_PAIRS].tolist()]
    strips = {
        index: Table(["z", "line"], list(zip(values, decoded_lines(run, model, at), strict=True)))
        for index, values, at in traversals_of(use)
    }
    how = "the decoder's most probable symbol at each step"
    rebuilt = list(zip(texts, decoded_lines(run, model, codes), strict=True))
    return code_report(
        run,
        model,
        use,
        "line",
        pairs=(f"Held-out lines, each with {how} from its code.", Table(["line", "rebuilt"], rebuilt)),
        error=(
            error_words("a symbol at each position, those before it given,", "line"),
            errors("position", ranges, own, other),
        ),
        traversals=(f" A line is {how}.", strips),
        facts={
            "rows": len(x),
            "position_nats": {"positions": ranges, "own_code": own.tolist(), "another": other.tolist()},
        },
        read=f"{run.facts.source.name}, {len(x):,} held-out lines",
        command=inspect_again(run, seed=seed),
    )


def decoded_lines(run: "TextTask", model: SentenceVAE, z: Tensor) -> list[str]:
    """Decode each code (N, L) greedily."""
    with torch.no_grad():
        results = greedy(model.decoder, z.to(next(model.parameters())), max_length=model.max_length, eos=model.eos)
    return [text_of(run, decoded.sequences[0].tolist())[0] for decoded in results]


def _ranges(length: int) -> list[str]:
    """Split the positions of a line into ranges, from 1."""
    size = -(-length // _RANGES)
    starts = range(1, length + 1, size)
    return [str(start) if size == 1 else f"{start}–{min(start + size - 1, length)}" for start in starts]


def _nats(model: SentenceVAE, x: Tensor, lengths: Tensor, ranges: list[str]) -> tuple[Tensor, Tensor]:
    """Average −ln p per range of positions, (R,), given each line's own code and another's."""
    rows, size = max(1, _LOGITS // (x.shape[1] * model.vocab_size)), -(-x.shape[1] // len(ranges))
    with torch.no_grad():
        codes = model.codes(x, lengths=lengths)
        means = []
        for z in (codes, codes.roll(1, 0)):
            parts = zip(x.split(rows), z.split(rows), lengths.split(rows), strict=True)
            nats = torch.cat([-model.decoder(x, z, lengths).log_prob(x) for x, z, lengths in parts])
            padding = torch.arange(x.shape[1], device=lengths.device) >= lengths.unsqueeze(1)
            nats = nats.double().masked_fill(padding, torch.nan)
            means.append(torch.stack([part.nanmean() for part in nats.split(size, 1)]))
    return means[0], means[1]

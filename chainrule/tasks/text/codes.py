"""Lines of a text through a code: bounds of their likelihood, draws, and how much of the code is in use."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.display import one_line
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import SentenceVAE
    from chainrule.tasks.text.inspection import TextInspection
    from chainrule.tasks.text.rows import TextScoring
    from chainrule.tasks.text.sampling import TextSampling
    from chainrule.tasks.text.task import TextTask
    from chainrule.training.validation import OnValidation

_SEED = 4  # of the draws: the same lines have the same bound
_LOOKED_AT = 512  # held-out lines whose codes are
_SHOWN = 3
_UNFIT = {"prompt": "", "temperature": 1.0, "top_k": None, "top_p": None}  # options of other models, as not given


def score_by_bounds(run: "TextTask", file: str, options: "TextScoring", *, ranked: bool, device: str) -> Answer:
    """Score the lines of a file by bounds."""
    import torch

    from chainrule.tasks.bounds import BoundTotal, checked_samples, row_bounds
    from chainrule.tasks.text.embedding import batched_lines
    from chainrule.tasks.text.rows import Row, size_of_text
    from chainrule.training.units import describe_figures

    per = options.per or ("line" if ranked else "file")
    if per == "element":
        raise ValueError("--per element: the bound is of a whole line, which is encoded at once: use --per line")
    samples, model = checked_samples(options.samples), _code_model(run, device)
    total, bounds_total, place = Row(None, None), BoundTotal(), next(model.parameters()).device
    generator = torch.Generator(place).manual_seed(_SEED)
    basis, unknown = replace(run.basis, samples=samples), run.vocabulary.unknown

    def records() -> Iterator[Record]:
        for rows, x, lengths in batched_lines(run, file, ends=True):
            bounds = row_bounds(model, x.to(place), samples, generator, lengths=lengths.to(place))
            bounds_total.add(bounds)
            figures = zip(rows, bounds.nats.tolist(), bounds.elbo.tolist(), bounds.kl.tolist(), strict=True)
            for (line, text, ids), nats, elbo, kl in figures:
                unseen = 0 if unknown is None else int((ids == unknown).sum())
                total.add(nats, len(ids), unseen, size_of_text(text))
                values = {"line": line, "nats_at_most": nats, "elements": len(ids), "negative_elbo": elbo, "kl": kl}
                if per == "line":
                    shown = text.removesuffix("\n")
                    told = f"{line:>8} {nats:>10.2f} {elbo:>10.2f} {kl:>8.2f}  {one_line(shown)}"
                    surprise = nats if options.by == "nats" else nats / len(ids)
                    yield Record(values | {"text": shown}, told, surprise)
        if not total.elements:
            raise ValueError("the text to score is empty: expected at least one line")
        if per == "file":
            figures_of = {"nats_at_most": total.nats, "standard_error": bounds_total.standard_error}
            figures_of |= {"negative_elbo": bounds_total.elbo, "kl": bounds_total.kl, "elements": total.elements}
            yield Record(figures_of | total.text_figures())

    def closing() -> Iterable[str]:
        yield f"{bounds_total.rows:,} lines, {bounds_total.said('line', samples)}"
        yield f"at most {describe_figures(total.text_figures())}"

    def entry() -> LedgerEntry:
        return LedgerEntry(basis, total.nats, total.elements, "", bounds_total.standard_error, total.bytes)

    heading = "" if per == "file" else f"{'line':>8} {'nats ≤':>10} {'-ELBO':>10} {'KL':>8}  text"
    return Answer(records(), heading, closing, entry, basis)


def embed_sentences(run: "TextTask", file: str, *, device: str) -> Iterator[Code]:
    """The mean of the code of each line."""
    import torch

    from chainrule.tasks.text.embedding import batched_lines

    model = _code_model(run, device)
    place = next(model.parameters()).device
    for rows, x, lengths in batched_lines(run, file, ends=True):
        with torch.no_grad():
            codes = model.codes(x.to(place), lengths=lengths.to(place)).float().cpu().tolist()
        for (line, _, _), numbers in zip(rows, codes, strict=True):
            yield Code(str(line), numbers)


def sample_sentences(run: "TextTask", n: int, options: "TextSampling", *, seed: int, device: str) -> Answer:
    """Draw a code for each of n lines, and the line from it."""
    import torch

    for name, usual in _UNFIT.items():
        if getattr(options, name) != usual:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: a {run.config.model} draws a code, and the whole line from it: leave it out")
    model = _code_model(run, device)
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)

    def records() -> Iterator[Record]:
        for ids in model.sample(n, generator).tolist():
            text, elements = _text(run, ids[: options.length])
            values = {"prompt": "", "text": text, "elements": elements, "seed": seed}
            yield Record(values, text)

    return Answer(records())


def inspect_sentences(run: "TextTask", data: str | None, options: "TextInspection") -> Answer:
    """How much of the code is in use, on held-out lines."""
    from chainrule.diagnostics.active_units import active_units

    if data is not None or options.property is not None:
        what = data if data is not None else f"--property {options.property}"
        raise ValueError(f"inspect: reads the codes of held-out lines of the run, got {what}: leave it out")
    x, lengths = _held_out(run, _LOOKED_AT)
    model = _code_model(run, "cpu")
    use = active_units(model, x, lengths=lengths)
    assert use.kl is not None
    values: dict[str, Any] = {"run": str(run.path), "rows": len(x), "collapsed": use.collapsed}
    values |= {"remedies": list(use.remedies), "active": use.ranked, "kl": use.kl.tolist()}
    values["variance"] = use.variances.tolist()
    lines = [f"{len(x):,} held-out lines: {use}", *use.remedies]
    lines.append(f"{'dimension':>9} {'KL, nats':>9}  variance of the mean")
    lines += [f"{place:>9} {use.kl[place]:>9.3f}  {use.variances[place]:.4f}" for place in use.ranked]
    return Answer(iter([Record(values, "\n".join(lines))]))


def sentence_preview(run: "TextTask") -> "OnValidation":
    """A function that draws a few lines at each validation, and tells how much of the code is in use."""
    from chainrule.tasks.codes import CodeWatch

    watch = CodeWatch()

    def preview(trained: Any, step: int, seconds: float) -> str:
        import torch

        generator = torch.Generator(next(trained.parameters()).device).manual_seed(step)
        drawn = [_text(run, ids)[0] for ids in trained.sample(_SHOWN, generator).tolist()]
        x, lengths = _held_out(run, _LOOKED_AT)
        return "\n".join([*drawn, watch.look(trained, x, lengths)])

    return preview


def _held_out(run: "TextTask", count: int) -> "tuple[Tensor, Tensor]":
    """(N, T) symbols of held-out lines, cut as in training, and their lengths."""
    from chainrule.tasks.text.preparing import own_window

    x, lengths, _ = own_window(run, count, run.training.line_length)
    assert lengths is not None
    return x, lengths


def _text(run: "TextTask", ids: list[int]) -> tuple[str, int]:
    """The text of symbols up to the end of the line, and how many they are, the end counted."""
    ends = run.vocabulary.eos
    read = ids[: ids.index(ends)] if ends in ids else ids
    return run.vocabulary.decode(read), min(len(read) + 1, len(ids))


def _code_model(run: "TextTask", device: str) -> "SentenceVAE":
    from chainrule.models import SentenceVAE

    model: Any = run.model(device)
    assert isinstance(model, SentenceVAE)
    return model

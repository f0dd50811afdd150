"""Lines of a text through a code: bounds of their likelihood, codes, and draws."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chainrule.tasks.abilities import Answer, Code, Record
from chainrule.tasks.display import flag, one_line
from chainrule.tasks.ledger import LedgerEntry

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import SentenceVAE
    from chainrule.tasks.text.rows import TextScoring
    from chainrule.tasks.text.sampling import TextSampling
    from chainrule.tasks.text.task import TextTask
    from chainrule.training.validation import OnValidation

_LOOKED_AT = 512  # held-out lines whose codes are
_SHOWN = 3
_UNFIT = {"prompt": "", "temperature": 1.0, "top_k": None, "top_p": None}  # options of other models, as not given


def score_by_bounds(run: "TextTask", file: str, options: "TextScoring", *, ranked: bool, device: str) -> Answer:
    """Score the lines of a file by bounds."""
    from chainrule.tasks.bounds import BoundMeter, checked_samples
    from chainrule.tasks.text.embedding import batched_lines
    from chainrule.tasks.text.rows import Row, size_of_text
    from chainrule.training.units import describe_figures

    per = options.per or ("line" if ranked else "file")
    if per == "element":
        raise ValueError("--per element: the bound is of a whole line, which is encoded at once: use --per line")
    samples = checked_samples(options.samples)
    total, bounds = Row(None, None), BoundMeter(code_model(run, device), samples)
    basis, unknown = replace(run.basis, samples=samples), run.vocabulary.unknown

    def records() -> Iterator[Record]:
        for rows, x, lengths in batched_lines(run, file, ends=True):
            for (line, text, ids), (nats, elbo, kl) in zip(rows, bounds.measure(x, lengths), strict=True):
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
            figures = {"nats_at_most": total.nats, "standard_error": bounds.standard_error}
            figures |= {"negative_elbo": bounds.elbo, "kl": bounds.kl, "elements": total.elements}
            yield Record(figures | total.text_figures())

    def closing() -> Iterable[str]:
        yield f"{bounds.rows:,} lines, {bounds.said('line')}"
        yield f"at most {describe_figures(total.text_figures())}"

    def entry() -> LedgerEntry:
        return LedgerEntry(basis, total.nats, total.elements, "", bounds.standard_error, total.bytes)

    heading = "" if per == "file" else f"{'line':>8} {'nats ≤':>10} {'-ELBO':>10} {'KL':>8}  text"
    return Answer(records(), heading, closing, entry, basis)


def embed_sentences(run: "TextTask", file: str, *, device: str) -> Iterator[Code]:
    """The mean of the code of each line."""
    import torch

    from chainrule.tasks.text.embedding import batched_lines

    model = code_model(run, device)
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
            raise ValueError(
                f"{flag(name)}: a {run.config.model} draws a code, and the whole line from it: leave it out"
            )
    model = code_model(run, device)
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)

    def records() -> Iterator[Record]:
        for ids in model.sample(n, generator).tolist():
            text, elements = text_of(run, ids[: options.length])
            values = {"prompt": "", "text": text, "elements": elements, "seed": seed}
            yield Record(values, text)

    return Answer(records())


def sentence_preview(run: "TextTask") -> "OnValidation":
    """A function that draws a few lines at each validation."""

    def preview(trained: Any, step: int, seconds: float) -> str:
        import torch

        generator = torch.Generator(next(trained.parameters()).device).manual_seed(step)
        return "\n".join(text_of(run, ids)[0] for ids in trained.sample(_SHOWN, generator).tolist())

    return preview


def held_out(run: "TextTask") -> "tuple[Tensor, Tensor]":
    """(N, T) symbols of held-out lines, cut as in training, and their lengths."""
    from chainrule.tasks.text.preparing import own_window

    x, lengths, _ = own_window(run, _LOOKED_AT, run.training.line_length)
    assert lengths is not None
    return x, lengths


def text_of(run: "TextTask", ids: list[int]) -> tuple[str, int]:
    """The text of symbols up to the end of the line, and how many they are, the end counted."""
    ends = run.vocabulary.eos
    read = ids[: ids.index(ends)] if ends in ids else ids
    return run.vocabulary.decode(read), min(len(read) + 1, len(ids))


def code_model(run: "TextTask", device: str) -> "SentenceVAE":
    """The trained model of a run that has a code."""
    from chainrule.models import SentenceVAE

    model: Any = run.model(device)
    assert isinstance(model, SentenceVAE)
    return model

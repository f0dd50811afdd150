"""Models of lines with a code: likelihood bounds, samples, and the information that the code gives of a line."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from chainrule.base import length_mask
from chainrule.decoding import greedy
from chainrule.diagnostics.active_units import active_units
from chainrule.diagnostics.report.code_page import code_sections
from chainrule.diagnostics.report.page import Table
from chainrule.models import SentenceVAE
from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.codes import BoundMeter, about_code, code_answer, error_words, errors, traversal_words, traversed
from chainrule.tasks.display import counted, flag, one_line
from chainrule.tasks.ledger import LedgerEntry
from chainrule.tasks.page import checked_page, inspect_again
from chainrule.tasks.text.embedding import batched_lines
from chainrule.tasks.text.inspection import TextInspection
from chainrule.tasks.text.preparing import own_window
from chainrule.tasks.text.rows import Row, TextScoring, size_of_text
from chainrule.tasks.text.sampling import TextSampling
from chainrule.training.evaluate import describe_figures
from chainrule.training.validation import OnValidation

if TYPE_CHECKING:
    from chainrule.tasks.text.task import TextTask

_LOOKED_AT = 512  # held-out lines whose codes are
_SHOWN = 3
_PAIRS = 12  # lines that are shown with their reconstructions
_RANGES = 24  # of positions
_LOGITS = 1 << 24  # held at a time
_UNFIT = {"prompt": "", "temperature": 1.0, "top_k": None, "top_p": None}  # options of other models, as not given


def score_by_bounds(run: "TextTask", file: str, options: TextScoring, *, ranked: bool, device: str) -> Answer:
    """Score the lines of a file by bounds."""
    per = options.per or ("line" if ranked else "file")
    if per == "element":
        raise ValueError("--per element: the bound is of a whole line, which is encoded at once: use --per line")
    total, bounds = Row(None, None), BoundMeter(run.code_model(device, "score"), options.samples)
    basis, unknown = replace(run.basis, samples=bounds.samples), run.vocabulary.unknown

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
            raise ValueError(f"{file}: expected at least one line to score, got an empty text")
        if per == "file":
            figures = {"nats_at_most": total.nats, "standard_error": bounds.standard_error}
            figures |= {"negative_elbo": bounds.elbo, "kl": bounds.kl, "elements": total.elements}
            yield Record(figures | total.text_figures())

    def closing() -> Iterable[str]:
        yield f"{counted(bounds.rows, 'line')}, {bounds.said('line')}"
        yield f"at most {describe_figures(total.text_figures())}"

    def entry() -> LedgerEntry:
        return LedgerEntry(basis, total.nats, total.elements, "", bounds.standard_error, total.bytes)

    heading = "" if per == "file" else f"{'line':>8} {'nats ≤':>10} {'-ELBO':>10} {'KL':>8}  text"
    return Answer(records(), heading, closing, entry, basis)


def sample_sentences(run: "TextTask", n: int, options: TextSampling, *, seed: int, device: str) -> Answer:
    """Draw a code for each of n lines, and the line from it."""
    for name, usual in _UNFIT.items():
        if getattr(options, name) != usual:
            raise ValueError(
                f"{flag(name)}: a {run.config.model} draws a code, and the whole line from it: leave it out"
            )
    model = run.code_model(device, "sample")
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)

    def records() -> Iterator[Record]:
        for ids in model.sample(n, generator).tolist():
            text, elements = text_of(run, ids[: options.length])
            values = {"prompt": "", "text": text, "elements": elements, "seed": seed}
            yield Record(values, text)

    return Answer(records())


def sentence_preview(run: "TextTask") -> OnValidation:
    """A function that draws a few lines at each validation."""

    def preview(trained: Any, step: int, seconds: float) -> str:

        generator = torch.Generator(next(trained.parameters()).device).manual_seed(step)
        return "\n".join(text_of(run, ids)[0] for ids in trained.sample(_SHOWN, generator).tolist())

    return preview


def held_out(run: "TextTask") -> tuple[Tensor, Tensor]:
    """(N, T) symbols of held-out lines, cut as in training, and their lengths."""
    x, lengths, _ = own_window(run, _LOOKED_AT, run.training.line_length)
    assert lengths is not None
    return x, lengths


def text_of(run: "TextTask", ids: list[int]) -> tuple[str, int]:
    """The text of symbols up to the end of the line, and how many they are, the end counted."""
    ends = run.vocabulary.eos
    read = ids[: ids.index(ends)] if ends in ids else ids
    return run.vocabulary.decode(read), min(len(read) + 1, len(ids))


def inspect_codes(run: "TextTask", data: str | None, options: TextInspection, *, out: Path | None, seed: int) -> Answer:
    """Inspect the code of a run on its held-out lines."""
    if data is not None or options.property is not None:
        what = data if data is not None else f"--property {options.property}"
        raise ValueError(f"inspect: reads the codes of held-out lines of the run, got {what}: leave it out")
    page, model = checked_page(out, run.path), run.code_model("cpu", "inspect")
    x, lengths = held_out(run)
    use = active_units(model, x, lengths=lengths)
    ranges = _ranges(int(lengths.max()))
    own, other = _nats(model, x, lengths, ranges)
    codes = use.codes[:_PAIRS]
    texts = [text_of(run, row)[0] for row in x[:_PAIRS].tolist()]
    strips = {
        place: Table(["z", "line"], list(zip(values, _texts(run, model, at), strict=True)))
        for place, values, at in traversed(use)
    }
    how = "the decoder's most probable symbol at each step"
    sections = code_sections(
        use,
        "line",
        (
            f"Held-out lines, each with {how} from its code.",
            Table(["line", "rebuilt"], list(zip(texts, _texts(run, model, codes), strict=True))),
        ),
        (
            error_words("a symbol at each position, those before it given,", "line"),
            errors("position", ranges, own, other),
        ),
        (traversal_words(use, "line", f" A line is {how}."), strips),
        None,
    )
    facts = {
        "rows": len(x),
        "position_nats": {"positions": ranges, "own_code": own.tolist(), "another": other.tolist()},
    }
    about = about_code(run, model, f"{run.facts.source.name}, {len(x):,} held-out lines")
    command = inspect_again(run, seed=seed)
    return code_answer(run, page, use, sections, facts, about=about, command=command)


def _texts(run: "TextTask", model: SentenceVAE, z: Tensor) -> list[str]:
    """The line of each code (N, L), symbol by symbol the most probable one."""

    with torch.no_grad():
        found = greedy(model.decoder, z.to(next(model.parameters())), max_length=model.max_length, eos=model.eos)
    return [text_of(run, decoded.sequences[0].tolist())[0] for decoded in found]


def _ranges(length: int) -> list[str]:
    """The positions of a line in at most so many ranges, from 1."""
    size = -(-length // _RANGES)
    starts = range(1, length + 1, size)
    return [str(start) if size == 1 else f"{start}–{min(start + size - 1, length)}" for start in starts]


def _nats(model: SentenceVAE, x: Tensor, lengths: Tensor, ranges: list[str]) -> tuple[Tensor, Tensor]:
    """The mean −ln p of the symbols in each range of positions, (R,), with their own codes and with others'."""

    rows, size = max(1, _LOGITS // (x.shape[1] * model.vocab_size)), -(-x.shape[1] // len(ranges))
    with torch.no_grad():
        codes = model.codes(x, lengths=lengths)
        found = []
        for z in (codes, codes.roll(1, 0)):
            parts = zip(x.split(rows), z.split(rows), lengths.split(rows), strict=True)
            nats = torch.cat([-model.decoder(x, z, lengths).log_prob(x) for x, z, lengths in parts])
            nats = nats.double().masked_fill(~length_mask(lengths, x.shape[1]), torch.nan)
            found.append(torch.stack([part.nanmean() for part in nats.split(size, 1)]))
    return found[0], found[1]

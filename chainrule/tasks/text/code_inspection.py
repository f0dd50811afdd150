"""Inside the code of a trained model of sentences: what is in use, what each dimension does, what is told of a line."""

from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer
from chainrule.tasks.code_page import about_code, code_answer, error_words, errors, traversal_words, traversed
from chainrule.tasks.page import checked_page, inspect_again
from chainrule.tasks.text.codes import code_model, held_out, text_of

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.models import SentenceVAE
    from chainrule.tasks.text.inspection import TextInspection
    from chainrule.tasks.text.task import TextTask

_PAIRS = 12  # lines that are shown with their reconstructions
_RANGES = 24  # of positions
_LOGITS = 1 << 24  # held at a time


def inspect_codes(
    run: "TextTask", data: str | None, options: "TextInspection", *, out: Path | None, seed: int
) -> Answer:
    """Inspect the code of a run on its held-out lines."""
    from chainrule.diagnostics.active_units import active_units
    from chainrule.diagnostics.report.code_page import code_sections
    from chainrule.diagnostics.report.page import Table

    if data is not None or options.property is not None:
        what = data if data is not None else f"--property {options.property}"
        raise ValueError(f"inspect: reads the codes of held-out lines of the run, got {what}: leave it out")
    page, model = checked_page(out, run.path), code_model(run, "cpu")
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
    about = about_code(run, model, f"{run.config.facts['source']['name']}, {len(x):,} held-out lines")
    command = inspect_again(run, seed=seed)
    return code_answer(run, page, use, sections, facts, about=about, command=command)


def _texts(run: "TextTask", model: "SentenceVAE", z: "Tensor") -> list[str]:
    """The line of each code (N, L), symbol by symbol the most probable one."""
    import torch

    from chainrule.decoding import greedy

    with torch.no_grad():
        found = greedy(model.decoder, z.to(next(model.parameters())), max_length=model.max_length, eos=model.eos)
    return [text_of(run, decoded.sequences[0].tolist())[0] for decoded in found]


def _ranges(length: int) -> list[str]:
    """The positions of a line in at most so many ranges, from 1."""
    size = -(-length // _RANGES)
    starts = range(1, length + 1, size)
    return [str(start) if size == 1 else f"{start}–{min(start + size - 1, length)}" for start in starts]


def _nats(model: "SentenceVAE", x: "Tensor", lengths: "Tensor", ranges: list[str]) -> "tuple[Tensor, Tensor]":
    """The mean −ln p of the symbols in each range of positions, (R,), with their own codes and with others'."""
    import torch

    from chainrule.base import length_mask

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

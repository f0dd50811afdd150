"""Inspections of small untrained models on texts that try to break out of a page."""

import torch

from chainrule import RecurrentLM
from chainrule.data import ByteVocabulary, CharVocabulary, Vocabulary, WordVocabulary
from chainrule.diagnostics import Inspection, inspect_recurrence, mixer_views
from chainrule.models import TransformerLM
from chainrule_app.pages.clipping import Clipping, clipping
from chainrule_app.pages.page import Page
from chainrule_app.pages.read_text import ReadRow, ReadText
from chainrule_app.pages.recurrence_page import mean_surprise, reading_line, recurrence_sections
from chainrule_app.tasks.text.head_inspection import cache_size, heads_sections
from chainrule_app.tasks.text.spans import symbol_spans

NASTY = "<script>alert(\"x\")</script> & <b onclick='y()'>\n\x1b[31m \u202eab\u0301\n"


def read(vocabulary: Vocabulary, lines: list[str]) -> tuple[ReadText, torch.Tensor, list[int]]:
    """The text as the command line prepares it: rows, symbols padded with 0, and lengths."""
    rows = [vocabulary.encode(line) for line in lines]
    x = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    parts = []
    for row, ids in enumerate(rows):
        x[row, : len(ids)] = torch.from_numpy(ids)
        parts.append(ReadRow(*symbol_spans(vocabulary, ids)))
    return ReadText("the <em>text</em>", vocabulary.level, parts), x, [len(ids) for ids in rows]


def make(
    cell: str = "lstm",
    lines: tuple[str, ...] = (NASTY, "plain words"),
    level: str = "char",
    *,
    dead: bool = False,
    **options,
) -> tuple[Inspection, ReadText]:
    text = "".join(lines)
    vocabulary = {
        "char": lambda: CharVocabulary(text),
        "byte": ByteVocabulary,
        "word": lambda: WordVocabulary(sorted(set(text.split()))),
    }[level]()
    subject, x, lengths = read(vocabulary, list(lines))
    torch.manual_seed(0)
    model = RecurrentLM(len(vocabulary), cell, hidden_size=6, **options)
    if dead:
        model.recurrent.bias_ih_l1.data.fill_(-50)
    return inspect_recurrence(model, x, torch.tensor(lengths)), subject


def page_of(sections: list, reading: str = "") -> str:
    """The page of a run with a nasty name."""
    lead, command = f"an <u>lstm</u>; {reading}", "chainrule inspect 'runs/<i>mine</i>'"
    return str(Page("Inside runs/<i>mine</i>", lead, sections, command))


def report_page(inspection: Inspection, subject: ReadText, clipping: Clipping | None = None) -> str:
    reading = reading_line(subject, inspection.flow.lengths, mean_surprise(inspection))
    return page_of(recurrence_sections(inspection, subject, clipping), reading)


def make_page() -> str:
    """The page of two layers, with training."""
    metrics = [{"event": "step", "step": step, "gradient_norm": 2.0 / step} for step in range(1, 9)]
    return report_page(*make(num_layers=2), clipping(metrics, 1.0))


def make_heads_page() -> str:
    """The page of a Transformer of two blocks with two heads."""
    vocabulary = CharVocabulary(NASTY)
    shown, x, lengths = read(vocabulary, [NASTY, NASTY[::-1]])
    torch.manual_seed(0)
    model = TransformerLM(len(vocabulary), model_size=8, num_layers=2, num_heads=2).eval()
    views, bits = mixer_views(model, x)
    return page_of(heads_sections(views, cache_size(model), bits, shown, torch.tensor(lengths)))

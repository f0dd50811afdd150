"""What a page about the code of a model of sentences shows."""

import torch

from chainrule.diagnostics.active_units import LatentUse
from chainrule.diagnostics.report.code_page import Cells, CodeReport, Traversal


def code_report(labels: bool = True) -> CodeReport:
    """Of three dimensions two are active."""
    codes = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    kl = torch.tensor([1.5, 0.0, 0.5])
    use = LatentUse(codes, codes.var(0), kl, torch.tensor([True, False, True]), ())
    texts = ["a <b> c", "nothing but a line that is as long as lines are, and then some more words of it"]
    return CodeReport(
        "runs/<x>", "sentence-vae with 3 parameters", "line", use,
        Cells(["line", "rebuilt"], [texts, texts[::-1]]), "Pairs.",
        Cells(["position", "nats"], [["1", "2.0"], ["2–3", "1.0"]], [1.0, 0.25]), "Errors.",
        [Traversal(place, Cells(["z", "line"], [["-2.50", texts[0]], ["+2.50", texts[1]]])) for place in use.ranked],
        "Strips.", ["<yes>", "no"] * 20 if labels else None, "column <label>", "chainrule inspect 'runs/<x>'",
    )  # fmt: skip

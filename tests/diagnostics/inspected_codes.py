"""What a page about the code of a model of sentences shows."""

import torch

from chainrule.diagnostics import LatentUse
from chainrule_app.pages.code_page import Labels, code_sections
from chainrule_app.pages.page import Page, Table


def code_report(labels: bool = True, **shown) -> str:
    """Of three dimensions two are active."""
    codes = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    kl = torch.tensor([1.5, 0.0, 0.5])
    use = LatentUse(codes, codes.var(0), kl, torch.tensor([True, False, True]), ())
    texts = ["a <b> c", "nothing but a line that is as long as lines are, and then some more words of it"]
    strips = {place: Table(["z", "line"], [["-2.50", texts[0]], ["+2.50", texts[1]]]) for place in use.ranked}
    nats = Table(["position", "nats"], [["1", "2.0"], ["2–3", "1.0"]], shares=[1.0, 0.25], kind="barred")
    given = {
        "pairs": ("Pairs.", Table(["line", "rebuilt"], [texts, texts[::-1]])),
        "error": ("Errors.", nats),
        "traversals": ("Strips.", strips),
        "labels": Labels(["<yes>", "no"] * 20, "column <label>") if labels else None,
    }
    sections = code_sections(use, "line", **given | shown)
    return str(Page("The code of runs/<x>", "sentence-vae with 3 parameters", sections, "chainrule inspect 'runs/<x>'"))

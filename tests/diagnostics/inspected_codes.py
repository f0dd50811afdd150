"""What a page about the code of a model of images shows."""

import numpy as np
import torch

from chainrule._app.pages.code_page import code_sections
from chainrule._app.pages.page import Page
from chainrule.diagnostics import LatentUse

PIXELS = np.zeros((4, 12), np.uint8)


def code_report(labels: bool = True) -> str:
    """Of three dimensions two are active."""
    codes = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    kl = torch.tensor([1.5, 0.0, 0.5])
    use = LatentUse(codes, codes.var(0), kl, torch.tensor([True, False, True]), ())
    each = ["<yes>", "no"] * 20 if labels else None
    sections = code_sections(use, PIXELS, ("Errors.", PIXELS), ("Strips.", dict.fromkeys(use.ranked, PIXELS)), each)
    return str(Page("The code of runs/<x>", "vae with 3 parameters", sections, "chainrule inspect 'runs/<x>'"))

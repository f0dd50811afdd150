"""What the chapters share: one look of figures, for a lecture room and a phone, and the size of experiments."""

import os
import sys
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

FULL = os.environ.get("CHAINRULE_COURSE") == "full"
"""Whether experiments run in full size; as the manual is built, they are small enough for a few seconds each."""

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#2563a8", "#d9730d", "#2f8f4e", "#c0392b", "#7b4fa3", "#7a7a7a"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY)

# torch.optim imports torch.compile, which nothing here uses, and that takes longer than importing torch itself.
compiler: Any = ModuleType("torch._dynamo")
compiler.disable, compiler.graph_break = (lambda function, *_, **__: function), lambda: None
sys.modules["torch._dynamo"] = torch._dynamo = compiler

set_matplotlib_formats("svg")
plt.rcParams.update(
    {
        "axes.prop_cycle": plt.cycler(color=COLOURS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 13,
        "figure.constrained_layout.use": True,
        "figure.facecolor": "white",
        "font.size": 13,
        "legend.frameon": False,
        "lines.linewidth": 2.4,
        "savefig.facecolor": "white",
        "svg.hashsalt": "chainrule",
    }
)


def figure(rows: int = 1, columns: int = 1, height: float = 4.2, **options: Any) -> tuple[Any, Any]:
    """A figure 7 inches wide, whose words a phone still shows, and its axes: see `plt.subplots`."""
    return plt.subplots(rows, columns, figsize=(7, height), **options)

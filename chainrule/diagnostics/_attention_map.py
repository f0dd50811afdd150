"""The attention of each word of an answer, as a heat map."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_map(weights: Tensor, source: Sequence[str], target: Sequence[str]) -> "Figure":
    """A heat map of attention: a row for each word written, a column for each word read, darker where it is more.

    Args:
        weights: (T, S), rows that sum to 1.
        source: S words.
        target: T words.

    Returns:
        A figure; `figure.savefig("map.png")` writes it.

    Raises:
        ValueError: the weights are of another shape; matplotlib is not installed.

    Source: Bahdanau, Cho and Bengio 2015, figure 3.

    >>> import torch
    >>> figure = attention_map(torch.eye(2), ["guten", "tag"], ["good", "day"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['good', 'day']
    """
    if weights.shape != (len(target), len(source)):
        raise ValueError(
            f"weights: expected shape {(len(target), len(source))}, the words of target and source, "
            f"got {tuple(weights.shape)}"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("images need the package matplotlib, which is not installed: pip install matplotlib") from None
    size = (1.5 + 0.4 * len(source), 1.5 + 0.35 * len(target))
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(weights.detach().cpu().float().numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(
        range(len(source)), [_plain(word) for word in source], rotation=60, ha="left", rotation_mode="anchor"
    )
    axes.set_yticks(range(len(target)), [_plain(word) for word in target])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    return figure


def _plain(word: str) -> str:
    """A word that matplotlib does not read as mathematics."""
    return word.replace("$", r"\$")

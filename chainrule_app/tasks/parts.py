"""Parameter counts of the parts of a model."""

from torch import nn


def parts_of(model: nn.Module) -> dict[str, int]:
    """Count the parameters of each part of a model; shared parameters count for the first part.

    >>> parts_of(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)))
    {'0': 9, '2': 4}
    """
    counts: dict[str, int] = {}
    for name, weight in model.named_parameters():  # yields shared parameters once
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + weight.numel()
    return counts


def parts_table(parts: dict[str, int]) -> list[str]:
    """Format the counts as lines.

    >>> parts_table({"encoder": 1200, "head": 34})
    ['encoder  1,200   97.2%', 'head        34    2.8%']
    """
    total, width = max(sum(parts.values()), 1), max(map(len, parts))
    digits = max(len(f"{count:,}") for count in parts.values())
    return [f"{name:<{width}}  {count:>{digits},}  {count / total:6.1%}" for name, count in parts.items()]

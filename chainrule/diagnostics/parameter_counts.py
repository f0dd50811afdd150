"""Where the parameters of a model are."""

from torch import nn


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Number of parameters of each direct part of a model that has some, in order; shared ones count once, where first.

    Parameters of the model itself come last, under "itself".

    >>> parameter_counts(nn.ModuleDict({"input": nn.Linear(2, 3), "activation": nn.Tanh(), "output": nn.Linear(3, 1)}))
    {'input': 9, 'output': 4}
    """
    counted: set[int] = set()

    def count(module: nn.Module) -> int:
        new = {id(weight): weight.numel() for weight in module.parameters() if id(weight) not in counted}
        counted.update(new)
        return sum(new.values())

    counts = {name: count(part) for name, part in model.named_children()} | {"itself": count(model)}
    return {name: number for name, number in counts.items() if number}

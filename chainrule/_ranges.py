"""Checks of the ranges of arguments."""

from chainrule.option_error import OptionError


def check_sizes(**sizes: int | None) -> None:
    """Raise ValueError for the first argument that is below 1; one that is None is left out.

    >>> check_sizes(hidden_size=8, num_layers=0)
    Traceback (most recent call last):
    chainrule.option_error.OptionError: num_layers: expected an integer >= 1, got 0
    """
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise OptionError(name, f"expected an integer >= 1, got {size}")


def check_shares(**shares: float) -> None:
    """Raise ValueError for the first argument that is not in [0, 1), such as a probability of dropping."""
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise OptionError(name, f"expected a number in [0, 1), got {share}")


def check_batch_size(batch_size: int, shard: tuple[int, int]) -> None:
    """`ValueError` unless the processes can share the rows of a batch equally; `shard` is (rank, number of
    processes)."""
    rank, world = shard
    if not 0 <= rank < world:
        raise ValueError(f"shard: expected a rank from 0 to {world - 1}, got {rank}")
    if batch_size < 1 or batch_size % world:
        raise OptionError(
            "batch_size", f"expected a positive multiple of the number of processes, {world}, got {batch_size}"
        )


def check_seed(seed: int) -> None:
    """`ValueError` unless `seed` can seed a generator."""
    if seed < 0:
        raise OptionError("seed", f"expected at least 0, got {seed}")

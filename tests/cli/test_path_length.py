"""What `train` builds, opens, reads and passes through, as `benchmarks/path_length.py` counts it, does not grow."""

import math
from pathlib import Path

import pytest


@pytest.fixture
def path_length(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import path_length

    return path_length


def speed(network, *_):
    """Steps per second as if all time went into products with matrices, embeddings apart."""
    shapes = {name: weight.shape for name, weight in network.named_parameters()}
    matrices = [math.prod(shape) for name, shape in shapes.items() if "ngrams" not in name and len(shape) > 1]
    return 2e7 / sum(matrices)


@pytest.mark.parametrize(
    ("data", "options", "networks", "optimisers"),
    [
        ("poem.txt", ("--budget", "10s"), 2, 2),  # one of 128 units is timed, and the one that is trained
        ("poem.txt", ("--steps", "2"), 1, 1),
        ("rows.csv", ("--budget", "0.5s"), 1, 3),  # two trials have one each, for copies
        ("rows.csv", ("--steps", "2"), 1, 1),
    ],
)
def test_counts_of_a_training(path_length, tmp_path, monkeypatch, data, options, networks, optimisers):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", speed)
    monkeypatch.setattr("chainrule.training._duration.Seconds.finished", lambda _, position: position.step >= 2)
    write = {"poem.txt": path_length.write_poem, "rows.csv": path_length.write_rows}[data]
    built, reads, files = path_length.train_on(write(tmp_path / data), tmp_path / "run", *options)
    files = set(files) - {"tasks/model_size.py"}  # whose hook of torch stays once an earlier test has opened a run
    most = {"poem.txt": (4, 2, 12), "rows.csv": (1, 1, 31)}[data]
    assert (built["networks"], built["optimisers"]) == (networks, optimisers)
    for count, limit in zip((len(reads.bytes), reads.full, len(files)), most, strict=True):
        assert count <= limit, "\n".join(sorted(files))

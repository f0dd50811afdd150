"""The benchmarks count what is computed, on the path that a user's call takes."""

from pathlib import Path

import pytest
import torch
from torch import nn

from chainrule.models import MADE


@pytest.fixture
def operations(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    from side_by_side import operations

    return operations


def test_products_and_convolutions_are_counted(operations):
    matrix, vector = torch.ones(3, 5), torch.ones(5)
    assert operations(lambda: matrix @ matrix.t()) == 2 * 3 * 5 * 3
    assert operations(lambda: matrix @ vector) == 2 * 3 * 5
    assert operations(lambda: torch.addmv(torch.ones(3), matrix, vector)) == 2 * 3 * 5
    assert operations(lambda: nn.Conv1d(2, 3, 4)(torch.ones(1, 2, 9))) == 2 * (2 * 4) * 3 * 6


@torch.no_grad()
def test_a_sample_is_counted_with_its_caches(operations):
    model = MADE(64, [32]).eval()
    passes = operations(lambda: model.sample(1)) / operations(lambda: model.log_prob(torch.zeros(1, 64)))
    assert passes <= 1.5  # 64 where every column takes a pass

"""What every test and doctest starts from: the same seed, one thread, and for doctests a folder for their files."""

import gc
import os
import random
from collections.abc import Iterator

import hypothesis
import numpy
import pytest
import torch

# Results then do not depend on the number of cores, and test processes do not fight for them.
torch.set_num_threads(1)
# A test leaves many objects and few cycles: to look for these at the usual moments takes an eighth of the time.
gc.set_threshold(100_000, 50, 1_000)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.register_profile("repeatable", deadline=None, max_examples=25, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("repeatable")
os.fsync = lambda descriptor: None  # no test cuts the power, and waiting for the disk takes longer than many a training


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Begin each test from the same global random state."""
    random.seed(0)
    numpy.random.seed(0)
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` would format three tracebacks where there is no CUDA


@pytest.fixture(autouse=True)
def own_folder(request: pytest.FixtureRequest) -> None:
    """Run the examples of README.md and docs/ where the files that they write disturb nothing."""
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))


@pytest.fixture(scope="session", autouse=True)
def copies_of_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep copies of what lies behind URLs out of the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHAINRULE_CACHE", str(tmp_path_factory.mktemp("copies")))
        yield

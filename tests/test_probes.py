"""Probes of the machine and timings draw from no generator that results depend on.

The first LSTM step in bfloat16 tried oneDNN on a module, whose weights came from the generator that dropout draws
from. So a resumed run, in a process of its own, differed from a whole one.
"""

import importlib
import inspect
import pkgutil
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from small_models import EVERY

from chainrule import kernels
from chainrule._latent import LatentModel
from chainrule.data import Batch
from chainrule.diagnostics import gradient_profile
from chainrule.modes import seed_torch
from chainrule.training import Computation, Processes
from chainrule.training._evaluate import Objective
from chainrule.training._gradients import Gradients

UNTRAINED = ("LinearForecaster", "NgramLM")  # which are fitted
CPU = torch.device("cpu")
VALUES: dict[Any, list[Any]] = {torch.dtype: [torch.bfloat16, torch.float16], str: [""]}


def cached_functions() -> Iterator[tuple[str, Any]]:
    """What the kernels find out once about the machine."""
    for info in pkgutil.iter_modules(kernels.__path__, "chainrule.kernels."):
        module = importlib.import_module(info.name)
        for name, member in vars(module).items():
            if hasattr(member, "cache_clear") and member.__module__ == info.name:
                yield f"{info.name.rpartition('.')[2]}.{name}", member


PROBES = dict(cached_functions())


def generators() -> tuple[Any, ...]:
    """States of the generators of Python, NumPy and torch."""
    _, numbers, *place = np.random.get_state()  # the global one
    return random.getstate(), numbers.tolist(), place, torch.get_rng_state().tolist()


def test_the_probes_of_this_test_are_those_that_there_are() -> None:
    assert {"_products._onednn_runs_lstm", "_products.packs", "_compiled._imported"} <= PROBES.keys()


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_of_the_machine_draws_nothing(name: str) -> None:
    probe = PROBES[name].__wrapped__
    types = [parameter.annotation for parameter in inspect.signature(probe).parameters.values()]
    before = generators()
    for value in VALUES[types[0]] if types else [None]:
        probe(*[value][: len(types)])
    assert generators() == before


@pytest.fixture
def new_process() -> Callable[[], None]:
    """Forget what was found out about the machine, as a process that resumes a run has not found it out yet."""

    def forget() -> None:
        for name, probe in PROBES.items():
            if name not in ("_compiled._is_kept", "_machine_code._tell"):  # which look for a folder, and print a line
                probe.cache_clear()

    return forget


@pytest.mark.parametrize("way", [Computation(1), Computation(1, "bfloat16", "vendor")], ids=str)
@pytest.mark.parametrize("name", sorted(EVERY.keys() - set(UNTRAINED)))
def test_the_first_step_of_a_process_draws_what_later_steps_draw(
    name: str, way: Computation, new_process: Callable[[], None]
) -> None:
    torch.manual_seed(0)
    model, arguments = EVERY[name]()
    x, context, lengths = (*arguments, None, None)[:3]
    model.train()
    if isinstance(model, LatentModel):
        model.kl_warmup = 0.0
    gradients = Gradients(Objective(model, way.dtype), model, Processes(0, 1, CPU), 1.0)
    steps = []
    new_process()
    with way.applied_to(model):
        for _ in range(2):
            batch = Batch(x, lengths=lengths, context=context, whole=True)
            result = gradients(batch, None, 1.0, partial(seed_torch, 0))
            steps.append((result.nats.item(), generators()))
            model.zero_grad()
    assert steps[0] == steps[1]


def test_watching_the_gradients_of_a_training_draws_nothing() -> None:
    model, (x, *_) = EVERY["RecurrentLM"]()
    before = generators()
    gradient_profile(model, x)
    assert generators() == before

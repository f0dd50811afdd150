"""Run as a script by each of several processes: gradients and steps of models whose weights are divided.

Usage: sharded_gradients.py DIRECTORY SUBJECT...

Each process computes the gradient of the whole batch on its own, as one process does that holds the whole model, and
then with the others. It writes what differs, by subject, to `DIRECTORY/differing-RANK`.
"""

import copy
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from small_models import EVERY, pixels

from chainrule import models
from chainrule.data import Batch
from chainrule.layers._transformer_stack import MIXERS
from chainrule.option_error import OptionError
from chainrule.state import map_state
from chainrule.training import Objective, Processes, make_optimiser
from chainrule.training._batch import count_elements
from chainrule.training._evaluate import score
from chainrule.training._gradients import Gradients
from chainrule.training._optimiser import clip_gradient
from chainrule.training._parallel import seed_step, whole_of
from chainrule.training._sharding import trainee

CPU = torch.device("cpu")
NAIVE = "an LSTM that is divided itself"
LIMIT = 1e-3  # of the norm of gradients: below that of every model here


@dataclass(frozen=True)
class Subject:
    """A model and, for each of some steps, the rows of each process."""

    model: torch.nn.Module
    steps: list[list[Batch]]
    precision: torch.dtype = torch.float32


def family(name: str, rows: int, world: int) -> Subject:
    """A family in float64, with the first of the rows that the tests of the contract have for it."""
    model, arguments = EVERY[name]()
    x, context, lengths = (*map_state(wide, arguments), None, None)[:3]
    whole = lengths is None

    def part(chosen):
        own = map_state(lambda leaf: leaf[chosen] if len(leaf) == len(x) else leaf, (x, context, lengths))
        return Batch(own[0], None if whole else own[2], context=own[1], whole=whole)

    return Subject(model.double(), [[part(torch.arange(len(x))[:rows][rank::world]) for rank in range(world)]])


def chunks(model: torch.nn.Module, world: int, precision: torch.dtype = torch.float32) -> Subject:
    """Two chunks of three rows of symbols; the state crosses from one to the other."""
    x = pixels(3, 8, levels=4)
    first = [Batch(x[rank::world, :4]) for rank in range(world)]
    second = [Batch(x[rank::world, 4:], previous=x[rank::world, 3]) for rank in range(world)]
    return Subject(model, [first, second], precision)


def blocks(mixer: str = "softmax", **options) -> torch.nn.Module:
    return models.TransformerLM(4, model_size=8, num_layers=2, num_heads=2, attention=mixer, **options)


def wide(leaf):
    return leaf.double() if leaf.is_floating_point() else leaf


FAMILIES = [name for name in EVERY if name not in ("LinearForecaster", "NgramLM")]  # they have no gradients
SUBJECTS: dict[str, Callable[[int], Subject]] = {
    **{f"{name}, {rows} rows": partial(family, name, rows) for name in FAMILIES for rows in (3, 1)},
    **{f"chunks of {mixer}": lambda world, mixer=mixer: chunks(blocks(mixer).double(), world) for mixer in MIXERS},
    "chunks of an LSTM": lambda world: chunks(models.RecurrentLM(4, hidden_size=8, num_layers=2).double(), world),
    "chunks of post-norm": lambda world: chunks(blocks(norm_first=False, dropout=0.3).double(), world),
    "chunks in bfloat16": lambda world: chunks(blocks(), world, torch.bfloat16),
}


def differing(subject: Subject, group: Processes) -> Iterator[str]:
    """Name what differs between this group and one process."""
    model, precision = subject.model.train(), subject.precision
    alone = copy.deepcopy(model)
    trained = trainee(model, precision, group, shard=True)
    trained.release()
    gradients, objective = Gradients(trained.objective, trained.model, group, LIMIT), Objective(alone, precision)
    states, state = [None] * group.world, None
    for parts in subject.steps:
        elements = sum(map(count_elements, parts))
        alone.zero_grad()
        trained.model.zero_grad()
        for rank, part in enumerate(parts):
            if len(part.x):
                seed_step(0, 0, 0)
                nats, states[rank] = score(objective, part, states[rank], CPU)
                (nats / elements).backward()
        norm = clip_gradient(alone, LIMIT)
        result = gradients(parts[group.rank], state, 1.0, partial(seed_step, 0, 0, 0))
        state = result.state
        yield from compared("gradient", trained.model, alone, lambda weight: weight.grad)
        if not torch.isclose(result.gradient_norm, norm.to(result.gradient_norm)):
            yield f"the norm is {float(result.gradient_norm)} instead of {float(norm)}"
    for kind in ("adamw", "muon"):
        try:
            optimisers = [make_optimiser(which, 0.1, 0.01, kind) for which in (alone, trained.model)]
        except OptionError:  # muon without hidden layers
            continue
        for optimiser in optimisers:
            optimiser.step()
        yield from compared(f"weight after {kind}", trained.model, alone, lambda weight: weight.detach())
    with trained.whole():
        if group.first:
            yield from compared("whole weight", model, alone, lambda weight: weight.detach())


def compared(what: str, model, alone, value) -> Iterator[str]:
    for (name, weight), other in zip(model.named_parameters(), alone.parameters(), strict=True):
        mine, expected = value(weight), value(other)
        if (mine is None) != (expected is None):
            yield f"{what} of {name}: {mine} instead of {expected}"
        elif mine is not None:
            relative, absolute = (1e-9, 1e-12) if expected.dtype == torch.float64 else (1e-3, 1e-5)
            if not torch.allclose(found := whole_of(mine), expected, rtol=relative, atol=absolute):
                yield f"{what} of {name}: {float((found - expected).abs().max())}"


def naive(group: Processes) -> Iterator[str]:
    """Name what differs where an LSTM itself is divided, whose `forward` returns a distribution."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, x = models.RecurrentLM(4, hidden_size=8).double(), pixels(4, 6, levels=4)
    alone = copy.deepcopy(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (group.world,)))
    alone(x).log_prob(x).sum().backward()
    own = x[group.rank :: group.world]
    (model(own).log_prob(own).sum() * group.world).backward()
    yield from compared("gradient", model, alone, lambda weight: weight.grad)


def main(directory: Path, names: list[str], group: Processes) -> None:
    found = {}
    for name in names:
        torch.manual_seed(0)
        found[name] = list(naive(group) if name == NAIVE else differing(SUBJECTS[name](group.world), group))
    (directory / f"differing-{group.rank}").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with Processes.join("cpu") as processes:
        main(Path(sys.argv[1]), sys.argv[2:] or [*SUBJECTS, NAIVE], processes)

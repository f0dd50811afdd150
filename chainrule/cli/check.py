"""`chainrule check`: the contract, on a trained model."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.run import Run

ROWS, ELEMENTS = 4, 32


def check(
    run: Path,
    /,
    *,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Check that a trained model keeps the contract: causality, total probability, step = forward and more.

    Runs on a piece of the run's own text. Exit status 0 if every check holds, 1 if one fails.

    Args:
        run: The run directory.
        seed: Of the perturbations and samples that the checks draw.
        json: Print one JSON object a check, with "name", "ok", "applies" and "detail".
    """
    from chainrule.run import Run
    from chainrule.testing import check_model

    opened = Run.open(run)
    model = opened.model()
    x, lengths = window(opened)
    report = check_model(model, x, lengths=lengths, seed=seed)
    if json:
        for result in report.results:
            record = {"name": result.name, "ok": result.ok, "applies": result.applies, "detail": result.detail}
            print(json_format.dumps(record))
    else:
        print(report)
    return 0 if report.ok else 1


def window(run: "Run") -> "tuple[Tensor, Tensor | None]":
    """(B, T) symbols of the run's own held-out text, and how many of each row are real where rows are lines.

    Raises:
        FileNotFoundError: the run's corpus is gone.
    """
    import torch

    from chainrule.data import line_evaluation, open_corpus
    from chainrule.run import CORPUS

    corpus = open_corpus(run.path / CORPUS)
    if corpus.reading == "lines":
        batch = next(iter(line_evaluation(corpus.valid, ROWS)))
        assert batch.lengths is not None
        return batch.x[:, :ELEMENTS], batch.lengths.clamp(max=ELEMENTS)
    tokens = corpus.valid if len(corpus.valid) >= ROWS * ELEMENTS else corpus.train
    width = min(ELEMENTS, len(tokens) // ROWS)
    return torch.from_numpy(tokens.slice(0, ROWS * width)).view(ROWS, width), None

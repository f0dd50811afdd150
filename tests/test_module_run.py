"""`fit(module, rows)`: a model of the caller's own, trained by the same loop."""

import signal

import numpy as np
import pytest
import torch
from torch import nn

import chainrule
from chainrule import RecurrentLM
from chainrule.models import Seq2Seq

ROWS = torch.arange(60).view(20, 3) % 4


def small(kind=RecurrentLM):
    torch.manual_seed(0)
    return kind(4, cell="gru", hidden_size=4)


def test_a_module_is_trained_scored_sampled_and_checked():
    run = chainrule.fit(small(), ROWS.numpy(), steps=20, batch_size=8, learning_rate=3e-2)
    losses = [record["nats_per_element"] for record in run.history if record["event"] == "validation"]
    assert losses[-1] < np.log(4)
    scores = run.score(ROWS)
    assert scores.names == ["row", "nats", "elements", "bits_per_element"]
    assert scores.summary["nats"] == pytest.approx(-run.model.log_prob(ROWS).double().sum().item())
    drawn = run.sample(5, length=3, seed=1)
    assert drawn.shape == (5, 3)
    assert (drawn == run.sample(5, length=3, seed=1)).all()
    assert run.check().ok


class Interrupting(RecurrentLM):
    """Presses Ctrl-C at its fifth pass."""

    passes = 0

    def forward(self, *arguments, **options):
        self.passes += 1
        if self.passes == 5:
            signal.raise_signal(signal.SIGINT)
        return super().forward(*arguments, **options)


def test_an_interrupted_module_resumes_to_the_same_weights(capsys):
    options = {"batch_size": 8, "steps": 6}
    whole = chainrule.fit(small(), ROWS, **options)
    parts = chainrule.fit(small(Interrupting), ROWS, **options)
    assert "is saved; run.resume() continues" in capsys.readouterr().err
    assert parts.resume() is parts
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], weight, rtol=0, atol=0)


def test_the_weights_of_a_module_are_saved(tmp_path):
    run = chainrule.fit(small(), ROWS, steps=2)
    before = run.path
    run.save(tmp_path / "run")
    assert not before.exists()
    assert (tmp_path / "run" / "model.safetensors").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        run.save(tmp_path / "file")


def test_rows_may_have_lengths():
    run = chainrule.fit(small(), ROWS, lengths=[1, 2] * 10, steps=2)
    assert run.score(ROWS[:2], lengths=[1, 2])["elements"] == [1, 2]
    assert run.score(ROWS[:2], lengths=[0, 2])["bits_per_element"][0] is None
    with pytest.raises(ValueError, match="at least one to score"):
        run.score(ROWS[:0])


class Logits(nn.Module):
    """Maps symbols to logits, and knows nothing of this library."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 4)

    def forward(self, x):
        return self.table(x)


def test_conditions_may_be_dicts_of_arrays_and_one_row_for_all():
    """The contract has conditions that are trees; here they had to be one tensor with all rows."""
    torch.manual_seed(0)
    model = Seq2Seq(5, 4, hidden_size=4, embedding_size=4)
    sources = {"tokens": torch.arange(80).view(20, 4) % 5, "lengths": torch.tensor([4, 2] * 10)}
    lengths = torch.full((20,), 3)
    run = chainrule.fit(
        model, ROWS, context={name: part.numpy() for name, part in sources.items()}, lengths=lengths, steps=2
    )
    nats = -model.log_prob(ROWS, sources, lengths)
    assert run.score(ROWS, sources, lengths)["nats"] == pytest.approx(nats.tolist())
    assert run.check().ok
    first = {name: part[:1] for name, part in sources.items()}
    nats = -model.log_prob(ROWS[:2], first, lengths[:2])
    assert run.score(ROWS[:2], first, lengths[:2])["nats"] == pytest.approx(nats.tolist())
    with pytest.raises(ValueError, match="context: expected one for each of 3 rows, got 2"):
        run.score(ROWS[:3], {name: part[:2] for name, part in sources.items()})


def test_a_module_of_logits_is_adapted_first():
    with pytest.raises(ValueError, match=r"chainrule.from_logits\(module\)"):
        chainrule.fit(Logits(), ROWS, steps=1)
    run = chainrule.fit(chainrule.from_logits(Logits()), ROWS, steps=2)
    assert run.sample(2, length=3, seed=0).shape == (2, 3)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (None, {}, "expected rows to train on"),
        (ROWS[:1], {}, "rows: expected at least two"),
        ([[0, 1], [2]], {}, r"rows: expected a tensor or array \(N, ...\), got list: stack rows of one length"),
        (list(ROWS), {}, r"rows: expected a tensor or array \(N, ...\), got list"),
        (ROWS, {"stpes": 3}, "stpes: unknown option: did you mean steps"),
        (ROWS, {"lenghts": 3}, "did you mean lengths"),
        (ROWS, {"lengths": [1]}, "lengths: expected one for each of 20 rows, got 1"),
    ],
)
def test_invalid_arguments_raise(rows, options, message):
    with pytest.raises(ValueError, match=message):
        chainrule.fit(small(), rows, **{"steps": 1} | options)

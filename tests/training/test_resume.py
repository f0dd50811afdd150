"""A run that is interrupted, however, and resumed is the run that was not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from killed_runs import MOMENTS
from training_toy import SYMBOLS, ToyLines, ToyModel, ToyStream, held_out, options, remains

from chainrule.kernels._products import _onednn_runs_lstm
from chainrule.models import RecurrentLM, TransformerLM, WaveNet
from chainrule.tensor_files import read_tensors, write_tensors
from chainrule.training import Computation, train


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run never interrupted."""
    directory = tmp_path_factory.mktemp("whole")
    train(ToyModel(), ToyStream(), held_out, options(), directory, progress=False)
    return directory


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killed_runs.py")
    subprocess.run([sys.executable, script, directory, *MOMENTS], check=True, timeout=120)
    return directory


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_at_any_moment_and_resumed_ends_with_the_same_bits(moment: str, killed: Path, whole: Path) -> None:
    model = ToyModel(seed=0 if moment == "before-the-first-checkpoint" else 1)  # its weights come from the checkpoint
    train(model, ToyStream(), held_out, options(), killed / moment, resume=True, progress=False)
    expected, got = remains(whole), remains(killed / moment)
    assert [name for name in expected if expected[name] != got.get(name)] == []
    assert expected.keys() == got.keys()


def test_a_killed_run_leaves_no_litter_behind(killed: Path, whole: Path) -> None:
    directory = killed / "in-a-half-written-checkpoint"
    train(ToyModel(), ToyStream(), held_out, options(), directory, resume=True, progress=False)
    assert sorted(path.name for path in directory.iterdir()) == sorted(path.name for path in whole.iterdir())


def test_two_runs_of_the_same_seed_agree_and_of_another_seed_differ(whole: Path, tmp_path: Path) -> None:
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "same", progress=False)
    train(ToyModel(), ToyStream(), held_out, options(seed=1), tmp_path / "other", progress=False)
    assert remains(tmp_path / "same") == remains(whole)
    assert remains(tmp_path / "other") != remains(whole)


class Stopping(ToyStream):
    """Raises at a step, as if the power had gone; what a test can do without a process of its own."""

    def __init__(self, stop_at: int):
        super().__init__()
        self.stop_at = stop_at

    def at(self, step: int):
        if step == self.stop_at:
            raise ConnectionError("the data is gone")
        return super().at(step)


def test_a_run_resumed_twice_ends_with_the_same_bits(whole: Path, tmp_path: Path) -> None:
    for resume, stop in ((False, 6), (True, 11)):
        with pytest.raises(ConnectionError):
            train(ToyModel(), Stopping(stop), held_out, options(), tmp_path, resume=resume, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path, resume=True, progress=False)
    assert remains(tmp_path) == remains(whole)


def attention(mixer: str = "softmax", **options: object) -> TransformerLM:
    sizes = {"model_size": 8, "num_layers": 2, "num_heads": 2, "ngram_buckets": 16}
    return TransformerLM(SYMBOLS, **sizes, attention=mixer, **options)


CARRIED = {
    "lstm": lambda: RecurrentLM(SYMBOLS, hidden_size=8, embedding_size=4, num_layers=2),
    "n-grams": lambda: RecurrentLM(SYMBOLS, hidden_size=8, embedding_size=4, ngram_order=2, ngram_buckets=1000),
    "transformer": attention,
    "transformer, a short window": lambda: attention(window=3),
    "linear": lambda: attention("linear"),
    "delta": lambda: attention("delta"),
    "min-gru": lambda: attention("min-gru"),
    "wavenet": lambda: WaveNet(SYMBOLS, channels=4, blocks=1, layers_per_block=2),
}


@pytest.mark.parametrize("name", CARRIED)
@pytest.mark.parametrize("kind", ["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_what_a_model_carries_from_chunk_to_chunk_comes_back(name: str, kind: str, tmp_path: Path) -> None:
    def run(data: ToyStream, directory: Path, *, resume: bool = False) -> None:
        torch.manual_seed(0)
        train(CARRIED[name](), data, held_out, options(optimiser=kind), directory, resume=resume, progress=False)

    run(ToyStream(), tmp_path / "whole")
    with pytest.raises(ConnectionError):
        run(Stopping(6), tmp_path / "stopped")  # its last checkpoint is in the middle of a pass
    run(ToyStream(), tmp_path / "stopped", resume=True)
    assert remains(tmp_path / "stopped") == remains(tmp_path / "whole")


def test_a_run_with_dropout_in_bfloat16_resumes_with_the_same_bits(tmp_path: Path) -> None:
    """A probe in the first step of each process drew from the generator of dropout (see tests/test_probes.py)."""

    def run(data: ToyStream, directory: Path, *, resume: bool = False) -> None:
        _onednn_runs_lstm.cache_clear()
        torch.manual_seed(0)
        model = RecurrentLM(SYMBOLS, hidden_size=8, embedding_size=4, dropout=0.3)
        with Computation(1, "bfloat16", "vendor").applied_to(model):
            train(model, data, held_out, options(precision="bfloat16"), directory, resume=resume, progress=False)

    run(ToyStream(), tmp_path / "whole")
    with pytest.raises(ConnectionError):
        run(Stopping(6), tmp_path / "stopped")
    run(ToyStream(), tmp_path / "stopped", resume=True)
    assert remains(tmp_path / "stopped") == remains(tmp_path / "whole")


def narrower(tensors, record):
    name = next(name for name, tensor in tensors.items() if name.startswith("state") and tensor.dim() == 4)
    tensors[name] = tensors[name][..., :1].contiguous()


def unknown_symbol(tensors, record):
    name = next(name for name, tensor in tensors.items() if name.startswith("state") and tensor.dtype == torch.int64)
    tensors[name] = torch.full_like(tensors[name], 1 << 40)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("transformer", narrower, r"carried state is damaged \(expected state\.\S+ in shape"),
        ("transformer", lambda tensors, record: record.update(state=None), "carried state is missing"),
        ("n-grams", unknown_symbol, r"checkpoint\.safetensors: its state does not fit the model .* damaged"),
    ],
)
def test_a_carried_state_that_does_not_fit_is_damage(name, damage, message, tmp_path):
    with pytest.raises(ConnectionError):
        train(CARRIED[name](), Stopping(6), held_out, options(), tmp_path, progress=False)
    file = tmp_path / "checkpoint.safetensors"
    tensors, record = read_tensors(file)
    damage(tensors, record)
    write_tensors(file, tensors, record)
    with pytest.raises(ValueError, match=message):
        train(CARRIED[name](), ToyStream(), held_out, options(), tmp_path, resume=True, progress=False)


def test_a_run_over_whole_lines_resumes_with_the_same_bits(tmp_path: Path) -> None:
    train(ToyModel(), ToyLines(), held_out, options(), tmp_path / "whole", progress=False)
    lines = ToyLines()
    lines.stream = Stopping(6)
    with pytest.raises(ConnectionError):
        train(ToyModel(), lines, held_out, options(), tmp_path / "cut", progress=False)
    train(ToyModel(), ToyLines(), held_out, options(), tmp_path / "cut", resume=True, progress=False)
    assert remains(tmp_path / "cut") == remains(tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(whole: Path, tmp_path: Path) -> None:
    result = train(ToyModel(), ToyStream(), held_out, options(), tmp_path, progress=False)
    again = train(ToyModel(seed=1), ToyStream(), held_out, options(), tmp_path, resume=True, progress=False)
    assert remains(tmp_path) == remains(whole)
    assert (again.step, again.best, again.last, again.ended_by) == (16, result.best, result.last, "length")


@pytest.mark.parametrize(
    ("changes", "size", "units", "message"),
    [
        ({"steps": 15}, 240, 8, "steps: expected at least the 16"),
        (
            {"learning_rate": 0.5, "clip_norm": None},
            240,
            8,
            r"learning_rate was 0\.003 and is 0\.5; clip_norm was 1\.0 and is None",
        ),
        ({}, 480, 8, r"12 batches an epoch.*got 24"),
        ({}, 240, 6, r"embedding.weight is \(8, 8\) in the file and \(8, 6\) in the model"),
    ],
    ids=["fewer steps", "options", "data", "model"],
)
def test_what_differs_from_the_run_that_is_resumed_is_named(changes, size, units, message, whole):
    before = remains(whole)
    with pytest.raises(ValueError, match=message):
        train(ToyModel(units), ToyStream(size=size), held_out, options(**changes), whole, resume=True, progress=False)
    assert remains(whole) == before


def test_a_new_run_does_not_replace_an_old_one(whole: Path) -> None:
    before = remains(whole)
    with pytest.raises(ValueError, match="resume=True"):
        train(ToyModel(), ToyStream(), held_out, options(), whole, progress=False)
    assert remains(whole) == before


def test_training_leaves_the_global_random_state_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path, progress=False)
    assert torch.equal(torch.get_rng_state(), before)

"""Two processes on one machine train as one process does on the same global batches."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import run_in_processes
from safetensors.torch import load_file
from training_toy import ToyLines, ToyModel, ToyStream, held_out, of_kind, options

from chainrule import RecurrentLM
from chainrule.devices import choose_device, process_shard
from chainrule.tensor_files import read_tensors
from chainrule.training import Processes, train
from chainrule.training._parallel import check_shares_of_rows
from chainrule_app.tasks import TASKS, task_class


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("two")
    run_in_processes(2, "parallel_run.py", directory)
    return directory


ONE = {
    "stream": lambda: ToyStream(),
    "lines": lambda: ToyLines(),
    "uneven stream": lambda: ToyStream(5),
    "one line": lambda: ToyLines(1),
    "muon": lambda: ToyStream(),
}


@pytest.mark.parametrize("kind", ONE)
def test_two_processes_equal_one_on_the_same_batches(kind: str, two: Path, tmp_path: Path) -> None:
    model, settings = of_kind(kind)
    train(model, ONE[kind](), held_out, settings, tmp_path, progress=False)
    one, other = load_file(tmp_path / "checkpoint.safetensors"), load_file(two / kind / "checkpoint.safetensors")
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        # float32 sums in another order; Adam divides by small second moments, which magnifies it
        torch.testing.assert_close(other[name], tensor, rtol=1e-3, atol=1e-5, msg=f"{name} differs")
    first, second = [(two / f"{kind}-{rank}" / "weights").read_bytes() for rank in (0, 1)]
    assert first == second


def test_buffers_are_those_of_the_first_process_and_then_each_ones_own(two: Path) -> None:
    assert [(two / f"table-{rank}").read_text() for rank in (0, 1)] == ["[7.0, 7.0]", "[8.0, 8.0]"]


def test_a_signal_to_one_process_saves_and_ends_them_all(two: Path) -> None:
    assert [(two / f"interrupted-{rank}").read_text() for rank in (0, 1)] == ["7", "7"]
    assert read_tensors(two / "interrupted" / "checkpoint.safetensors")[1]["position"]["step"] == 7


def test_a_run_of_two_processes_continues_as_one_of_one(two: Path, tmp_path: Path) -> None:
    train(ToyModel(dropout=0.0), ToyStream(), held_out, options(), tmp_path, progress=False)
    models = []
    for directory in (tmp_path, two / "stream"):
        models.append(ToyModel(dropout=0.0, seed=5))
        train(models[-1], ToyStream(), held_out, options(steps=22), directory, resume=True, progress=False)
    for mine, reference in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-3, atol=1e-5)  # as above


def test_the_rows_of_all_processes_are_the_rows_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {"h": torch.arange(12.0).view(6, 2)}
    parts = [Processes(rank, 3, torch.device("cpu")).own_rows(whole)["h"] for rank in range(3)]
    torch.testing.assert_close(torch.stack(parts, 1).flatten(0, 1), whole["h"])
    for rank, part in enumerate(parts):
        torch.testing.assert_close(part, whole["h"][rank::3])


@pytest.mark.parametrize("counts", [[3, 3, 1], [1, 2], [0, 1]])
def test_rows_that_are_not_every_nth_of_a_batch_are_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^train_batches: expected \[.*\] rows in the processes, rank::world of"):
        check_shares_of_rows(counts)


def test_outside_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert process_shard() == (0, 1)


def test_divided_weights_have_the_gradients_of_one_process(two: Path) -> None:
    for rank in (0, 1):
        found = json.loads((two / f"differing-{rank}").read_text())
        naive = found.pop("an LSTM that is divided itself")
        assert any("weight_hh_l0" in line for line in naive)  # this test sees gradients that were not averaged
        assert found
        assert set(map(tuple, found.values())) == {()}, found


def test_divided_weights_end_as_those_of_one_process(two: Path, tmp_path: Path) -> None:
    train(ToyModel(dropout=0.0), ToyStream(), held_out, options(), tmp_path, progress=False)
    best = [load_file(path / "model.safetensors") for path in (tmp_path, two / "sharded")]
    for name, tensor in best[0].items():
        torch.testing.assert_close(best[1][name], tensor, rtol=1e-3, atol=1e-5)  # as above
    first, second = [(two / f"sharded-{rank}" / "weights").read_bytes() for rank in (0, 1)]
    assert first == second
    there = {name: tensor.numel() for name, tensor in load_file(two / "sharded" / "checkpoint.safetensors").items()}
    assert set(there) == {"state.0"}  # weights and moments are in the folder
    [folder] = (two / "sharded").glob("checkpoint-*")
    sizes = [sum(part.numel() for part in load_file(file).values()) for file in sorted(folder.iterdir())]
    assert sum(sizes) == 3 * sum(weight.numel() for weight in ToyModel().parameters()) + 6  # and the steps
    assert abs(sizes[0] - sizes[1]) <= 6


def test_a_divided_run_continues_in_one_process(two: Path, tmp_path: Path) -> None:
    train(ToyModel(dropout=0.0), ToyStream(), held_out, options(), tmp_path / "one", progress=False)
    shutil.copytree(two / "sharded", tmp_path / "two")
    models = []
    for name in ("one", "two"):
        models.append(ToyModel(dropout=0.0, seed=5))
        settings = options(steps=22, shard=name == "two")
        train(models[-1], ToyStream(), held_out, settings, tmp_path / name, resume=True, progress=False)
    for mine, reference in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-3, atol=1e-5)  # as above


def test_weights_that_fsdp_divides_are_refused(tmp_path: Path) -> None:
    """Gradients of a divided LSTM stayed those of each process, without a word."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = RecurrentLM(3, hidden_size=4, cell="lstm")
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(ValueError, match=r"^model: fully_shard is not supported.* pass shard=True to divide"):
            train(model, ToyStream(), held_out, options(), tmp_path, progress=False)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:1", ""])
def test_an_unknown_device_is_refused_with_the_valid_ones(device: str) -> None:
    with pytest.raises(ValueError, match="expected auto, cpu, cuda, cuda:N or mps"):
        choose_device(device)


def test_a_gpu_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(ValueError, match="use device cpu"):
        choose_device("cuda:99")


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU of Apple alone."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("mac")
def test_auto_takes_the_gpu_of_apple_for_convolutions_and_attention_alone() -> None:
    found = {name: task_class(name).device("auto").type for name in TASKS}
    apple = {name for name, device in found.items() if device == "mps"}
    assert apple == {"image", "sound", "caption", "classify-images"}
    assert choose_device("auto").type == "cpu"


@pytest.mark.usefixtures("mac")
def test_tasks_that_need_float64_fall_back_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert task_class("text").device("mps") == torch.device("mps")
    assert capsys.readouterr().err == ""
    for name in ("table", "forecast"):
        assert task_class(name).device("mps") == torch.device("cpu")
        assert capsys.readouterr().err == f"mps has no float64, which the task {name} needs: computing on the CPU\n"


@pytest.mark.usefixtures("mac")
def test_several_processes_do_not_train_on_the_gpu_of_apple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="several processes train on cpu or cuda, got mps"):
        choose_device("mps")


def test_a_gpu_of_apple_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch finds no Apple GPU on this machine: use device cpu"):
        choose_device("mps")

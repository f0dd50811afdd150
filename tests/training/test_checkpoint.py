import json
import os
import pickle
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from training_toy import ToyModel

from chainrule.tensor_files import read_tensors, write_tensors
from chainrule.training import load_weights, save_weights

RECORD = {"kind": "weights", "about": {"step": 3}}


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    whole = torch.randn(4, 6)
    return {
        "matrix": torch.randn(3, 5),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "half": torch.randn(7).bfloat16(),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "columns": whole[:, ::2],
        "rows": whole[1:3],
        "other rows": whole[3:],
    }


def test_tensors_and_record_come_back_as_they_were(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", tensors, {"kind": "test", "number": 0.1})
    got, record = read_tensors(tmp_path / "x")
    assert record == {"kind": "test", "number": 0.1, "format": 1}
    assert got.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=0)


def test_the_same_content_is_the_same_file(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tensors(tmp_path / name, tensors, RECORD)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tied_weights_are_written_once_and_stay_tied(tmp_path: Path) -> None:
    model, other = ToyModel(hidden_size=64), ToyModel(hidden_size=64, seed=1)
    save_weights(tmp_path / "x", model, {})
    assert sum(tensor.numel() for tensor in load_file(tmp_path / "x").values()) == sum(
        parameter.numel() for parameter in model.parameters()
    )
    load_weights(tmp_path / "x", other)
    assert other.output.weight is other.embedding.weight
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_file_changed_in_any_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_weights(path, nn.Linear(2, 2), {"step": 1})
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(
            ValueError,
            match=r"x: expected (the file as chainrule wrote it|a file that chainrule wrote|a header of at most .*), ",
        ):
            read_tensors(path)


def test_a_file_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_weights(path, nn.Linear(2, 2), {"step": 1})
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match="truncated"):
            read_tensors(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train first"):
        read_tensors(tmp_path / "x")


def test_safetensors_from_elsewhere_are_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "x")
    with pytest.raises(ValueError, match="from elsewhere"):
        read_tensors(tmp_path / "x")


def test_a_newer_format_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("chainrule.tensor_files.FORMAT", 2)
        write_tensors(tmp_path / "x", {}, RECORD)
    with pytest.raises(ValueError, match="format 1 or older, got 2: upgrade"):
        read_tensors(tmp_path / "x")


def test_weights_are_no_checkpoint(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {}, {"kind": "checkpoint"})
    with pytest.raises(ValueError, match="expected a file of kind weights, got 'checkpoint'"):
        load_weights(tmp_path / "x", nn.Linear(1, 1))


def test_loading_executes_nothing(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    (tmp_path / "x").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError):
        load_weights(tmp_path / "x", nn.Linear(1, 1))
    assert not (tmp_path / "executed").exists()


def test_a_file_is_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    save_weights(tmp_path / "x", nn.Linear(1, 1), {})
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 10 kB, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path: Path, small_disk: None) -> None:
    path, model = tmp_path / "x", nn.Linear(2, 2)
    save_weights(path, model, {"step": 1})
    with pytest.raises(OSError, match=r"x: cannot be written .*the file before it is intact: free space") as failure:
        save_weights(path, nn.Linear(100, 100), {"step": 2})
    assert "\n" not in str(failure.value)
    assert load_weights(path, model) == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_record_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_tensors(tmp_path / "x", {}, {"best": float("nan")})
    assert not any(tmp_path.iterdir())


def test_the_record_is_plain_json_in_the_header(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {}, RECORD)
    content = (tmp_path / "x").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["chainrule"].partition(" ")[2])["about"] == {"step": 3}


def test_weights_are_found_by_the_name_of_their_file(tmp_path: Path) -> None:
    model, other = nn.Linear(2, 3), nn.Linear(2, 3)
    save_weights(str(tmp_path / "weights.safetensors"), model, {})
    assert load_weights(str(tmp_path / "weights.safetensors"), other) == {}
    assert torch.equal(other.weight, model.weight)

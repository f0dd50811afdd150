"""Weights and moments that are divided among processes: their files, what is refused, and every family."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from processes import run_in_processes
from safetensors.torch import load_file
from sharded_gradients import SUBJECTS
from torch import nn
from training_toy import SYMBOLS, ToyModel, ToyStream, held_out, options

import chainrule
from chainrule.layers import LSTM
from chainrule.models import TransformerLM
from chainrule.training import Processes, _sharded_checkpoint, make_optimiser, train
from chainrule.training._optimiser import moments
from chainrule.training._sharded_checkpoint import FOLDERS, SavedShards, remove_shards, save_shards
from chainrule.training._sharding import ShardedModel, closed_blocks
from chainrule_app.tasks import model_size
from chainrule_app.tasks.model_size import check_memory, count_weights

ALONE = Processes(0, 1, torch.device("cpu"))


def stepped(seed: int, kind: str = "adamw") -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model and its optimiser after a step."""
    torch.manual_seed(seed)
    model = TransformerLM(SYMBOLS, model_size=8, num_layers=1, num_heads=2)
    optimiser = make_optimiser(model, 0.1, 0.01, kind)
    x = torch.zeros(2, 3, dtype=torch.long)
    model(x).log_prob(x).sum().backward()
    optimiser.step()
    return model, optimiser


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_weights_and_moments_come_back_as_they_were(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sharded_checkpoint, "FILE_BYTES", 2000)
    model, optimiser = stepped(0, kind)
    record = save_shards(tmp_path, "", model, optimiser, ALONE)
    assert len(record["files"]) > 3
    saved, other = SavedShards(tmp_path, record, ALONE), stepped(1)[0]
    saved.load_weights(other)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    found, expected = saved.moments(other), moments(optimiser, model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], moment) for name, moment in expected.items())


def test_folders_are_used_in_turn_and_leftovers_of_a_killed_save_replaced(tmp_path: Path) -> None:
    model, optimiser = stepped(0)
    first = save_shards(tmp_path, "", model, optimiser, ALONE)["folder"]
    (tmp_path / FOLDERS[1]).mkdir()
    (tmp_path / FOLDERS[1] / "shard-00009-model-00001-of-00001.safetensors").write_text("torn")
    record = save_shards(tmp_path, first, model, optimiser, ALONE)
    assert {first, record["folder"]} == set(FOLDERS)
    assert all((tmp_path / folder).is_dir() for folder in FOLDERS)  # until the checkpoint names the new one
    SavedShards(tmp_path, record, ALONE).load_weights(model)
    remove_shards(tmp_path, record["folder"])
    assert not (tmp_path / first).exists()


def flip(folder: Path) -> None:
    [file] = folder.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def add(folder: Path) -> None:
    [file] = folder.iterdir()
    shutil.copy(file, folder / "shard-00002-model-00001-of-00001.safetensors")


@pytest.mark.parametrize("damage", [flip, add, shutil.rmtree])
def test_damaged_files_are_detected(damage: Callable[[Path], None], tmp_path: Path) -> None:
    record = save_shards(tmp_path, "", *stepped(0), ALONE)
    damage(tmp_path / record["folder"])
    with pytest.raises(ValueError, match=r"checkpoint-0: expected the files of the checkpoint .*: restore the folder"):
        SavedShards(tmp_path, record, ALONE)


@pytest.mark.parametrize("record", [None, {}, {"folder": ".."}, {"folder": FOLDERS[0]}, {"folder": [1], "files": {}}])
def test_a_record_of_other_files_is_refused(record: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"damaged|restore the folder"):
        SavedShards(tmp_path, record, ALONE)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    saved = SavedShards(tmp_path, save_shards(tmp_path, "", *stepped(0), ALONE), ALONE)
    for other in (ToyModel(hidden_size=4), nn.Linear(2, 3)):
        with pytest.raises(ValueError, match="checkpoint-0: expected weights of the same model"):
            saved.load_weights(other)


def test_a_resumed_run_of_one_process_has_the_bits_of_an_ordinary_one(tmp_path: Path) -> None:
    for shard in (False, True):
        for steps in (9, 16):
            settings, directory = options(steps=steps, shard=shard), tmp_path / f"shard={shard}"
            train(ToyModel(), ToyStream(), held_out, settings, directory, resume=steps > 9, progress=False)
    ordinary, divided = [(tmp_path / f"shard={shard}" / "model.safetensors").read_bytes() for shard in (False, True)]
    assert ordinary == divided
    with pytest.raises(ValueError, match="shard was True and is False"):
        train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "shard=True", resume=True, progress=False)


def test_a_run_with_a_divided_checkpoint_is_read_like_any_other(tmp_path: Path) -> None:
    out, text = tmp_path / "run", "one fish two fish red fish blue fish\n" * 20
    chainrule.fit(text=text, steps=2, out=out, shard=True, plain=True, hidden_size=8, batch_size=2, threads=1)
    weights = sum(weight.numel() for weight in chainrule.load(out).model.parameters())
    assert count_weights(out / "checkpoint.safetensors") > 3 * weights  # those of the folder
    run = chainrule.load(out).resume(steps=3)
    run.export("hub", tmp_path / "exported")
    assert not [path for path in (tmp_path / "exported").rglob("*") if "checkpoint" in path.name]
    [folder] = out.glob("checkpoint-*")
    (folder / "elsewhere").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="expected a file of the run, got a link"):
        chainrule.load(out)


def test_a_divided_model_may_take_more_memory_to_train_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_size, "memory", lambda: 10_000)
    check_memory(1000, "x", "y", shard=True)
    for weights, shard in ((1000, False), (3000, True)):
        with pytest.raises(ValueError, match="more than"):
            check_memory(weights, "x", "y", shard=shard)


class Scaled(ToyModel):
    """A model with a weight that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))


def test_models_that_fsdp_cannot_divide_are_named() -> None:
    two = Processes(0, 2, torch.device("cpu"))
    mixed = ToyModel()
    mixed.gru.double()
    for model, reason in ((Scaled(), "Scaled: scale is a single number"), (mixed, "its weights have several number")):
        with pytest.raises(ValueError, match=rf"^shard: FSDP2 cannot divide this .*{reason}.*: leave out shard"):
            ShardedModel(model, torch.float32, two)


def test_blocks_are_not_divided_within_blocks() -> None:
    class Outer(nn.Sequential):
        is_closed = True

    inner = Outer(nn.Linear(1, 1))
    outer = Outer(inner, nn.Linear(1, 1))
    assert closed_blocks(nn.Sequential(outer, LSTM(1, 1))) == [outer]


SOME = ["TransformerLM, 1 rows", "TransformerSeq2Seq, 1 rows", "SequenceTagger, 1 rows", "PixelRNN, 1 rows",
        "SwinTransformer, 3 rows", "chunks of an LSTM", "chunks of delta"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("world", "subjects"), [(2, list(SUBJECTS)), (3, SOME)])
def test_every_family_has_the_gradients_and_steps_of_one_process(
    world: int, subjects: list[str], tmp_path: Path
) -> None:
    run_in_processes(world, "sharded_gradients.py", tmp_path, *subjects)
    for rank in range(world):
        found = json.loads((tmp_path / f"differing-{rank}").read_text())
        assert found == {name: [] for name in subjects}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_runs_of_one_two_and_three_processes_continue_each_other(rank: int, tmp_path: Path) -> None:
    """With Muon, or with AdamW and changes of low rank."""
    steps = 0
    for world in (1, 2, 3, 1):
        steps += 5
        run_in_processes(world, "sharded_training.py", tmp_path / "several", steps, rank)
        run_in_processes(1, "sharded_training.py", tmp_path / "one", steps, rank)
    several, one = [load_file(tmp_path / name / "model.safetensors") for name in ("several", "one")]
    assert several.keys() == one.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(several[name], tensor, rtol=1e-3, atol=1e-5)  # sums in another order


@pytest.mark.slow
def test_two_processes_hold_half_of_an_lstm_each(tmp_path: Path) -> None:
    """Weights, gradients and two moments: 16 bytes a weight in float32."""
    held = {}
    for shard in (False, True):
        run_in_processes(2, "held_memory.py", tmp_path, shard)
        held[shard] = float((tmp_path / f"held with shard={shard}").read_text())
    assert 16 <= held[False] < 18
    assert 8 <= held[True] < 10

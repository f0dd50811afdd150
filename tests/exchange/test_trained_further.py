"""A GPT-2 from elsewhere is trained on a text of one's own, and is then a run like any other."""

import asyncio
import json
import random

import httpx
import pytest
import torch
from safetensors.torch import save_file

import chainrule
from chainrule_app.exchange import import_model
from chainrule_app.serve import create_app

SIZE, POSITIONS = 16, 12
TRAIN = ("--chunk-length", POSITIONS, "--batch-size", 4, "--threads", 1, "--precision", "float32")


def gpt2_files(folder) -> None:
    """Write a tiny GPT-2 as `transformers` does: the bytes and a few pairs of letters are its tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=264,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat"], trainer)
    shapes = {"wte.weight": (264, SIZE), "wpe.weight": (POSITIONS, SIZE), "ln_f.weight": (SIZE,), "ln_f.bias": (SIZE,)}
    for layer in range(2):
        parts = {"ln_1": (SIZE,), "ln_2": (SIZE,), "attn.c_attn": (SIZE, 3 * SIZE), "attn.c_proj": (SIZE, SIZE)}
        parts |= {"mlp.c_fc": (SIZE, 4 * SIZE), "mlp.c_proj": (4 * SIZE, SIZE)}
        shapes |= {f"h.{layer}.{part}.weight": shape for part, shape in parts.items()}
        shapes |= {f"h.{layer}.{part}.bias": shape[-1:] for part, shape in parts.items()}
    draw = torch.Generator().manual_seed(0)
    weights = {name: 0.2 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"n_embd": SIZE, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text and an imported GPT-2."""
    folder = tmp_path_factory.mktemp("gpt2")
    gpt2_files(folder / "source")
    import_model("huggingface", folder / "source", folder / "old")
    draw = random.Random(0)
    (folder / "new.txt").write_text("".join(draw.choices("bdfgq", k=1000)))
    (folder / "held.txt").write_text("".join(draw.choices("bdfgq", k=10 * POSITIONS)))  # of no pair: ten windows
    return folder


@torch.no_grad()
def held_out(home, run) -> float:
    """The nats per symbol of the held-out text in windows of all positions, each read from the start symbol."""
    ids = torch.from_numpy(run.task.vocabulary.encode((home / "held.txt").read_text()))
    nats = [-run.model(part.unsqueeze(0)).log_prob(part.unsqueeze(0)).sum().item() for part in ids.split(POSITIONS)]
    return sum(nats) / len(ids)


def test_its_figures_are_those_of_windows_as_long_as_its_positions(home, tmp_path, command):
    """A stream was refused, since its state would grow past the last position, and lines were no stream."""
    asked = ("train", home / "new.txt", "--validation", home / "held.txt", "--from", home / "old", *TRAIN)
    status, _, error = command(*asked, "--steps", 3, "--learning-rate", 0.01, "--out", tmp_path / "run")
    assert status == 0, error
    run = chainrule.load(tmp_path / "run")
    best = json.loads(command("info", tmp_path / "run", "--json")[1])["best"]["nats_per_element"]
    assert best == pytest.approx(held_out(home, run), abs=1e-5)  # float32, in other batches
    assert best < held_out(home, chainrule.load(home / "old")) - 0.1
    assert command("train", "--resume", "--out", tmp_path / "run", "--steps", 4)[0] == 0


def test_it_is_scored_sampled_and_served(home, tmp_path, command):
    run = chainrule.fit(
        home / "new.txt", init=home / "old", steps=2, chunk_length=POSITIONS, batch_size=4, out=tmp_path / "run"
    )
    assert command("score", tmp_path / "run", home / "new.txt")[0] == 0
    assert len(run.sample(2, length=POSITIONS - 1, seed=0)) == 2
    assert 0 < run.task.checked_rows().x.shape[1] <= POSITIONS
    served = create_app({"gpt2": run})

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://localhost") as client:
            drawn = await client.post("/v1/completions", json={"model": "gpt2", "prompt": "the", "max_tokens": 5})
            scored = await client.post("/runs/gpt2/score", json={"data": ["the cat sat on the mat"]})
        return drawn, scored

    drawn, scored = asyncio.run(ask())
    served.state.server.close()
    assert (drawn.status_code, scored.status_code) == (200, 200), (drawn.text, scored.text)
    assert drawn.json()["usage"]["completion_tokens"] == 5
    assert scored.json()["rows"][0]["nats"] == pytest.approx(run.score(["the cat sat on the mat"])["nats"][0], abs=1e-4)


def test_changes_of_low_rank_leave_the_embedding_and_fit_the_layout_of_gpt2(home, tmp_path):
    options = {"steps": 1, "chunk_length": POSITIONS, "batch_size": 4, "threads": 1, "precision": "float32"}
    run = chainrule.fit(home / "new.txt", init=home / "old", lora_rank=2, **options)
    old, new = chainrule.load(home / "old").model.state_dict(), run.model.state_dict()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    linear = ("in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight")
    assert changed == {name for name in old if name.endswith(linear)}
    run.export("hub", tmp_path / "hub")
    assert json.loads((tmp_path / "hub" / "config.json").read_text())["model_type"] == "gpt2"


def test_chunks_longer_than_the_positions_are_refused(home, tmp_path, command):
    asked = ("train", home / "new.txt", "--from", home / "old", "--out", tmp_path / "run")
    status, _, error = command(*asked)
    assert (status, error.count("\n")) == (2, 2)  # one says what is read
    assert f"{POSITIONS} symbols, got --chunk-length 64: use a --chunk-length of at most {POSITIONS}" in error
    assert "--reading was stream and is lines" in command(*asked, "--reading", "lines")[2]
    assert not (tmp_path / "run").exists()

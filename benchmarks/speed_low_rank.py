"""Training an imported GPT-2 further: all weights compared with changes of low rank (LoRA).

    python benchmarks/speed_low_rank.py [--width 384] [--layers 6] [--rank 8] [--steps 6]

Writes a GPT-2 with random weights in the files of `transformers`, imports it, and trains it further on a text, each way
in a process of its own with one thread: processor time a step, from a long and a short training, and the memory at
the peak of the long one above that of a process that has loaded the model and the text. Then it checks that one step
of low rank changes the weights of the linear layers alone. Nothing here depends on what the weights are.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from side_by_side import claim, publish
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import chainrule
from chainrule_app.exchange import import_model

POSITIONS, ROWS = 128, 4
WAYS: dict[str, dict[str, Any]] = {
    "all weights, Muon (default)": {},
    "all weights, AdamW": {"optimiser": "adamw"},
    "low rank, AdamW": {"lora_rank": 0},  # the rank that is asked for
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(trained(Path(options.one[0]), options.one[1], options.steps, options.rank)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_gpt2(folder / "source", options.width, options.layers)
        import_model("huggingface", folder / "source", folder / "old")
        text = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py")))
        (folder / "text.txt").write_text(text)
        rows = []
        for way in WAYS:
            sizes = [f"--{size}={getattr(options, size)}" for size in ("rank", "steps")]
            asked = [sys.executable, __file__, "--one", str(folder), way, *sizes]
            rows.append(json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout))
        changed = changed_by_a_step(folder, options.rank)
    full, low = rows[1], rows[2]
    publish(
        "speed_low_rank",
        rows,
        [
            claim(
                "low rank ÷ all weights with AdamW: processor time of a step",
                low["s a step"] / full["s a step"], "<=", 1.0,
            ),
            claim("the same: memory", low["MiB"] / full["MiB"], "<=", 0.7),
            claim("weights outside the linear layers that a step changes", float(len(changed)), "<=", 0),
        ],
    )  # fmt: skip


def write_gpt2(folder: Path, width: int, layers: int) -> None:
    """Write a GPT-2 of bytes with random weights."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    count = tokenizer.get_vocab_size()
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (count, width), "wpe.weight": (POSITIONS, width)}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    for layer in range(layers):
        parts: dict[str, tuple[int, ...]] = {"ln_1": (width,), "ln_2": (width,), "attn.c_attn": (width, 3 * width)}
        parts |= {"attn.c_proj": (width, width), "mlp.c_fc": (width, 4 * width), "mlp.c_proj": (4 * width, width)}
        shapes |= {f"h.{layer}.{part}.weight": shape for part, shape in parts.items()}
        shapes |= {f"h.{layer}.{part}.bias": shape[-1:] for part, shape in parts.items()}
    draw = torch.Generator().manual_seed(0)
    weights = {name: 0.02 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"n_embd": width, "n_layer": layers, "n_head": max(1, width // 64), "n_positions": POSITIONS}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": count, **sizes}))


def settings(steps: int, rank: int, way: str) -> dict[str, Any]:
    """Return the options of `fit`."""
    length = {"chunk_length": POSITIONS, "batch_size": ROWS, "threads": 1, "precision": "float32", "samples": False}
    own = {"lora_rank": rank} if "lora_rank" in WAYS[way] else WAYS[way]
    return {"steps": steps, "validate_every": 10**6, **length, **own}


def trained(folder: Path, way: str, steps: int, rank: int) -> dict[str, Any]:
    """Train further for a step, and for more."""
    spent = []
    old = chainrule.load(folder / "old")
    weights = sum(parameter.numel() for parameter in old.model.parameters())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for count in (1, 1 + steps):
        start = time.process_time()
        chainrule.fit(folder / "text.txt", init=folder / "old", **settings(count, rank, way))
        spent.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "training": way,
        "weights": weights,
        "rank": rank if "lora_rank" in WAYS[way] else None,
        "s a step": round((spent[1] - spent[0]) / steps, 3),
        "MiB": round(peak - before),
    }


def changed_by_a_step(folder: Path, rank: int) -> list[str]:
    """Return the names of weights outside the linear layers that a step of low rank changes."""
    run = chainrule.fit(folder / "text.txt", init=folder / "old", **settings(1, rank, "low rank, AdamW"))
    old, new = chainrule.load(folder / "old").model.state_dict(), run.model.state_dict()
    linear = ("in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight")
    return [name for name in old if not torch.equal(old[name], new[name]) and not name.endswith(linear)]


if __name__ == "__main__":
    main()

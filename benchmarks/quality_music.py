"""RNN-MADE on polyphonic music, nats a frame, scored once on test pieces that decided nothing.

    python benchmarks/quality_music.py [--only Nottingham] [--data FOLDER] [--seed 0]

FOLDER holds `polyphonic_music/{Nottingham,Piano_midi}.mat` (default: ../shared/data, or the environment variable
CHAINRULE_DATA): piano rolls of 88 notes in the parts train, valid and test of Boulanger-Lewandowski et al. (2012).
Sizes, dropout and the epoch were chosen on the validation pieces. Each training piece is moved by a number of
semitones drawn anew each epoch; held-out pieces stay as they are. Figures are sums over the 88 notes, means over all
frames of the test pieces, first frames included.
"""

import argparse
import copy
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from side_by_side import claim, publish
from torch import Tensor

from chainrule.models import RNNMADE
from chainrule.state import detach
from chainrule.training import learning_rate, make_optimiser

DEFAULTS: dict[str, Any] = {
    "cell": "lstm",
    "hidden_size": 256,
    "made_hidden": [256],
    "dropout": 0.3,
    "transposed": 5,  # semitones up or down at most
    "learning_rate": 3e-3,
    "weight_decay": 0.01,
    "rows": 16,  # pieces side by side
    "chunk_length": 100,  # frames that gradients flow through
    "core_minutes": 7.0,
    "epochs": 1000,
}
JOBS: dict[str, dict[str, Any]] = {
    "Nottingham": {"target": 2.6, "dropout": 0.2},
    "Piano_midi": {"target": 7.4, "dropout": 0.4},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pilot", nargs="*", metavar="NAME=VALUE", help="other settings, scored on validation only")
    options = parser.parse_args()
    for name in options.only or list(JOBS):
        path = options.data / "polyphonic_music" / f"{name}.mat"
        if not path.exists():
            print(f"{name}: skipped, there is no {path}: name the folder with --data")
            continue
        job = {**DEFAULTS, **JOBS[name]}
        if options.pilot is not None:
            given = (setting.split("=") for setting in options.pilot)
            job.update({key: value if key == "cell" else eval_number(value) for key, value in given})
        row = measure(name, read_pieces(path), job, options.seed, test=options.pilot is None)
        if options.pilot is None:
            target = claim(f"RNN-MADE, {name}, test nats per frame", row["test nats"], "<=", job["target"])
            publish(f"quality_music_{name}", [row], [target])


def eval_number(text: str) -> Any:
    """A number, or several separated by commas."""
    numbers = [float(part) if "." in part or "e" in part else int(part) for part in text.split(",")]
    return numbers if "," in text else numbers[0]


def read_pieces(path: Path) -> dict[str, list[Tensor]]:
    """The (T, 88) piano rolls of each part."""
    from scipy.io import loadmat

    cells = loadmat(path)
    return {
        part: [torch.from_numpy(roll).float() for roll in cells[f"{part}data"].ravel()]
        for part in ("train", "valid", "test")
    }


def measure(name: str, parts: dict[str, list[Tensor]], job: dict[str, Any], seed: int, *, test: bool) -> dict[str, Any]:
    """Train, and score the test pieces once; the row of figures."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    hidden = job["made_hidden"] if isinstance(job["made_hidden"], list) else [job["made_hidden"]]
    model = RNNMADE(88, job["hidden_size"], hidden, job["cell"], dropout=job["dropout"])
    with torch.no_grad():  # independent notes, to begin with
        frames = torch.cat(parts["train"])
        model.made.output.bias.copy_(((frames.sum(0) + 0.5) / (len(frames) + 1)).logit())
    began = time.process_time()
    epoch = fit(model, parts["train"], parts["valid"], job, generator)
    minutes = (time.process_time() - began) / 60
    row = {
        "set": name,
        "cell": job["cell"],
        "units": job["hidden_size"],
        "MADE units": "+".join(map(str, hidden)),
        "dropout": job["dropout"],
        "semitones": f"±{job['transposed']}",
        "best epoch": epoch,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "core minutes": minutes,
        "valid nats": nats_per_frame(model, parts["valid"]),
    }
    if test:
        row["test nats"] = nats_per_frame(model, parts["test"])
    return row


def fit(
    model: RNNMADE, train: list[Tensor], valid: list[Tensor], job: dict[str, Any], generator: torch.Generator
) -> int:
    """Truncated backpropagation through time, early stopping on validation; ends with the best weights, their epoch."""
    optimiser = make_optimiser(model, job["learning_rate"], job["weight_decay"])
    began, best, kept, best_epoch, spent = time.process_time(), math.inf, {}, 0, 0.0
    for epoch in range(1, job["epochs"] + 1):
        model.train()
        for pieces in batches(train, job["rows"], generator):
            shifts = torch.randint(-job["transposed"], job["transposed"] + 1, (len(pieces),), generator=generator)
            x, lengths = padded([moved(piece, int(by)) for piece, by in zip(pieces, shifts, strict=True)])
            real = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
            state, x_prev = model.initial_state(len(x)), None
            for start in range(0, x.shape[1], job["chunk_length"]):
                spent = (time.process_time() - began) / 60 / job["core_minutes"]
                for group in optimiser.param_groups:
                    group["lr"] = learning_rate(min(spent, 1.0), job["learning_rate"], warmup=0.02)
                chunk = slice(start, start + job["chunk_length"])
                with torch.autocast(x.device.type, torch.bfloat16):
                    conditionals, state = model.unroll(x[:, chunk], state, x_prev)
                    terms = conditionals.log_prob(x[:, chunk]).float()
                loss = -(terms * real[:, chunk]).sum() / real[:, chunk].sum()
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                state, x_prev = detach(state), x[:, chunk][:, -1]
            if spent >= 1:
                break
        nats = nats_per_frame(model, valid)
        if nats < best:
            best, best_epoch, kept = nats, epoch, copy.deepcopy(model.state_dict())
        seconds = time.process_time() - began
        print(f"epoch {epoch}: valid {nats:.4f} nats a frame, best {best:.4f}, {seconds:.0f} core seconds", flush=True)
        if spent >= 1:
            break
    model.load_state_dict(kept)
    return best_epoch


def batches(pieces: list[Tensor], rows: int, generator: torch.Generator) -> Iterator[list[Tensor]]:
    """Pieces of about the same length together, in an order drawn anew."""
    noisy = torch.tensor([float(len(piece)) for piece in pieces]).log() + 0.1 * torch.randn(
        len(pieces), generator=generator
    )
    groups = noisy.argsort().split(rows)
    for group in torch.randperm(len(groups), generator=generator).tolist():
        yield [pieces[place] for place in groups[group].tolist()]


def moved(piece: Tensor, by: int) -> Tensor:
    """A piece moved by semitones, as far as all its notes stay on the keyboard."""
    notes = piece.any(0).nonzero()
    if not len(notes):
        return piece
    by = max(min(by, 87 - int(notes.max())), -int(notes.min()))
    return piece.roll(by, 1)


def padded(pieces: list[Tensor]) -> tuple[Tensor, Tensor]:
    """(B, T, 88) and (B,)."""
    return torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True), torch.tensor([len(piece) for piece in pieces])


@torch.no_grad()
def nats_per_frame(model: RNNMADE, pieces: list[Tensor]) -> float:
    """Each frame weighing the same."""
    training = model.training
    model.eval()
    total, order = 0.0, sorted(pieces, key=len)
    for start in range(0, len(order), 16):
        x, lengths = padded(order[start : start + 16])
        total -= float(model.log_prob(x, lengths=lengths).double().sum())
    model.train(training)
    return total / sum(map(len, pieces))


if __name__ == "__main__":
    main()

"""Beam search over the Multi30k test set in batches beside one sentence at a time: the same output, the ratio of times.

    python benchmarks/speed_beam_search.py [--data FOLDER] [--work FOLDER] [--batch 250]

FOLDER of --work is where `benchmarks/quality_translation.py` left its weights; the model is its German-English
translator. Both ways search with the same function, encoder included, on one thread and on all cores; how many
sentences get the identical answer is told beside the ratio, which is that of the best times of the two: single
sentences are slower on two threads than on one. Seconds are those of the clock: the machine must be otherwise idle. The
same search with a beam of one (greedy decoding) is timed beside it, and products in float32 beside those in bfloat16,
which a processor that has them takes by default.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from quality_translation import FILES, MAX_LENGTH, MODELS, encoded
from safetensors.torch import load_file
from side_by_side import claim, publish

from chainrule.decoding import Decoded
from chainrule.devices import multiply_dtype
from chainrule.models import Seq2Seq
from chainrule_app.readers.pairs import open_pairs, read_sentences
from chainrule_app.readers.ragged import Ragged
from chainrule_app.tasks.translate.prediction import translations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--work", type=Path, default=Path("runs/multi30k"))
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--beam-size", type=int, default=5)
    options = parser.parse_args()
    file, weights = options.data / FILES.format("test_2016_flickr", "de"), options.work / "seq2seq.safetensors"
    for path, remedy in ((file, "name the folder with --data"), (weights, "run quality_translation.py first")):
        if not path.exists():
            print(f"skipped, there is no {path}: {remedy}")
            return
    pairs = open_pairs(options.work / "data")
    sizes = MODELS["seq2seq"][1]
    model = Seq2Seq(len(pairs.source_vocabulary), len(pairs.target_vocabulary), **sizes).eval()
    model.load_state_dict(load_file(weights))
    lines = [line for _, line in read_sentences(file)][: options.sentences]
    usual = multiply_dtype("auto", torch.device("cpu"))
    sources, rows = encoded(pairs.source_vocabulary, lines), []
    for beam_size, dtype in dict.fromkeys([(options.beam_size, usual), (1, usual), (options.beam_size, torch.float32)]):
        for threads in sorted({1, os.cpu_count() or 1}):
            torch.set_num_threads(threads)
            rows.append(compared(model, sources, beam_size, options.batch, dtype))
            print(rows[-1], flush=True)
    measured = [row for row in rows if (row["search"], row["products"]) == (rows[0]["search"], rows[0]["products"])]
    ratio = min(row["one at a time s"] for row in measured) / min(row["batched s"] for row in measured)
    what = f"{rows[0]['search']}, {rows[0]['products']}: batches of {options.batch} over one sentence at a time"
    identical = min(row["identical"] for row in measured)
    claims = [
        claim(f"{what}, best threads of each", ratio, ">=", 10, "×"),
        claim(f"{what}: identical translations", identical, ">=", len(lines)),
    ]
    publish("speed_beam_search", rows, claims)


def compared(model: Seq2Seq, sources: Ragged, beam_size: int, batch: int, dtype: torch.dtype) -> dict[str, Any]:
    """Seconds both ways: the batches three times, of which the median counts, as they are so much shorter."""
    search = {"eos": 1, "max_length": MAX_LENGTH, "beam_size": beam_size}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        translations(model, few(sources, 8), **search)  # warm
        took, batched = zip(*(timed(model, sources, batch, search) for _ in range(3)), strict=True)
        alone_took, alone = timed(model, sources, 1, search)
    together = sorted(took)[1]
    return {
        "search": f"beam {beam_size}",
        "products": str(dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "sentences": len(sources),
        "batch": batch,
        "words": sum(len(result.sequences[0]) for result in alone),
        "identical": same_output(batched[0], alone),
        "proven": sum(result.proven for result in alone),
        "one at a time s": alone_took,
        "batched s": together,
        "sentences/s": len(sources) / together,
        "ratio": alone_took / together,
    }


def timed(model: Seq2Seq, sources: Ragged, batch: int, search: dict[str, Any]) -> tuple[float, list[Decoded]]:
    start = time.perf_counter()
    results = translations(model, sources, batch_size=batch, **search)
    return time.perf_counter() - start, results


def few(sources: Ragged, count: int) -> Ragged:
    return Ragged(sources.values, sources.offsets[: count + 1])


def same_output(batched: list[Decoded], alone: list[Decoded]) -> int:
    """How many sentences have the identical translation both ways."""
    pairs = zip(batched, alone, strict=True)
    return sum(torch.equal(one.sequences[0], other.sequences[0]) for one, other in pairs)


if __name__ == "__main__":
    main()

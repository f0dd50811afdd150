"""Word language models trained by the command line, scored on text that decided nothing, beside an n-gram model.

    python benchmarks/quality_language_models.py [--only ptb] [--minutes M] [--data FOLDER] [--seed 0] [--avx2] [--keep]

ptb: Penn Treebank, the usual three files. wide: 2.5 million words, 35,160 different ones, all English and German texts
of FOLDER one after another (Penn Treebank, Multi30k, captions, reviews, web sentences, Shakespeare), in lower case;
words seen once are `<unk>`. The last twentieth of each source is the test part, the one before it chooses the
weights. FOLDER is ../shared/data, or the environment variable CHAINRULE_DATA; its README names the files. Each test
part is scored once; the test part of ptb is also scored with `--adapt`, by a copy of the model that learns while it
reads. Runs are written to runs/benchmarks and replace earlier ones. `--keep` scores the existing runs without training.
`--minutes` sets the training time (default: 34 for ptb, 25 for wide). `--avx2` hides AVX-512 from torch and oneDNN.
"""

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from peers import AVX2
from side_by_side import claim, publish

RUNS = Path("runs/benchmarks")
PARTS = ("train", "valid", "test")
JOBS = {"ptb": "--level word --weight-decay 0.1", "wide": "--level word"}
MINUTES = {"ptb": 34.0, "wide": 25.0}


def chainrule(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run one verb; progress goes to the screen, its JSON lines come back."""
    command = [sys.executable, "-m", "chainrule", *map(str, arguments), "--json"]
    print("$ chainrule", *map(str, arguments), flush=True)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if options.avx2:  # before torch looks
        os.environ.update(AVX2)
    for name in options.only or JOBS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                texts = {"ptb": penn_treebank, "wide": wide}[name](options.data)
            except FileNotFoundError as error:
                print(f"{name}: skipped, there is no {error.filename}: name the folder with --data")
                continue
            minutes = options.minutes or MINUTES[name]
            row = measure(name, texts, Path(folder), minutes, options.seed, keep=options.keep)
            if name == "ptb":
                what = f"Penn Treebank, words, {minutes:g} min: test perplexity"
                claims = [
                    claim(what, row["perplexity"], "<=", 68),
                    claim(f"{what}, learning while it reads", row["with --adapt"], "<=", 68),
                ]
            else:
                row |= trigrams(texts)
                what = f"2.5 million words, V = {row['V']:,}, defaults, {minutes:g} min"
                claims = [
                    claim(f"{what}: passes", row["passes"], ">=", 3),
                    claim(f"{what}: perplexity ÷ Kneser-Ney 3-grams'", row["perplexity"] / row["of 3-grams"], "<=", 1),
                ]
            publish(f"quality_{name}" + ("_avx2" if options.avx2 else ""), [row], claims)


def measure(
    name: str, texts: dict[str, list[str]], folder: Path, minutes: float, seed: int, *, keep: bool
) -> dict[str, Any]:
    """Train, unless a run is kept, and score the test part once; the row of figures."""
    for part, lines in texts.items():
        (folder / part).with_suffix(".txt").write_bytes("".join(f"{line}\n" for line in lines).encode())
    run, train, valid, test = RUNS / name, *(folder / f"{part}.txt" for part in PARTS)
    options = f"{JOBS[name]} --budget {minutes:g}m"
    given = ["--validation", valid, "--out", run, "--overwrite", "--seed", str(seed), *options.split()]
    if not keep:
        chainrule("train", train, *given)
    (scored,) = chainrule("score", run, test, "--per", "file")
    (facts,) = chainrule("info", run)
    timed = json.loads((run / "timings.jsonl").read_text().splitlines()[-1])
    rate, words = timed["training_elements_per_second"], sum(len(line.split()) + 1 for line in texts["train"])
    shape = facts["model"]["options"]
    row = {
        "text": name,
        "options": options,
        "seed": seed,
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "size": f"{shape['num_layers']} × {shape['hidden_size']}",
        "minutes": timed["elapsed"] / 60,
        "passes": rate * timed["training_seconds"] / words,
        "words/s": rate,
        "V": len({word for line in texts["train"] for word in line.split()}) + 1,
        "test words": scored["elements"],
        "perplexity": scored["perplexity"],
    }
    if name == "ptb":
        row["with --adapt"] = chainrule("score", run, test, "--per", "file", "--adapt")[0]["perplexity"]
    return row


def penn_treebank(data: Path) -> dict[str, list[str]]:
    return {part: lines_of(data / "ptb" / f"ptb.{part}.txt.gz") for part in PARTS}


def wide(data: Path) -> dict[str, list[str]]:
    """The lines of each part; words that the first part holds once are `<unk>` in all."""
    texts: dict[str, list[str]] = {part: [] for part in PARTS}
    for lines in sources(data):
        first, second = int(0.9 * len(lines)), int(0.95 * len(lines))
        for part, chosen in zip(PARTS, (lines[:first], lines[first:second], lines[second:]), strict=True):
            texts[part] += chosen
    counts = Counter(word for line in texts["train"] for word in line.split())
    return {
        part: [" ".join(word if counts[word] > 1 else "<unk>" for word in line.split()) for line in lines]
        for part, lines in texts.items()
    }


def sources(data: Path) -> list[list[str]]:
    """Lines of lower-case words."""
    found = [lines_of(data / "ptb" / f"ptb.{part}.txt.gz") for part in PARTS]
    found += [
        lines_of(data / "multi30k" / "tok" / f"{part}.lc.norm.tok.{side}.gz")
        for part in ("train", "val", "test_2016_flickr")
        for side in ("en", "de")
    ]
    for part in ("train", "dev"):
        captions = lines_of(data / "flickr8k_64px" / f"{part}_captions.txt.gz")
        found.append([line.partition("\t")[2] for line in captions])
    found += [
        [line.partition("\t")[0] for line in lines_of(data / "sst2" / f"{part}.tsv")] for part in ("train", "dev")
    ]
    for part in ("train", "dev", "test"):
        sentences = [""]
        for line in lines_of(data / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu.gz"):
            cells = line.split("\t")
            if cells[0].isdigit():
                sentences[-1] += cells[1] + " "
            elif line == "":
                sentences.append("")
        found.append(sentences)
    found.append(lines_of(data / "tinyshakespeare" / "input.txt"))
    return [[" ".join(line.lower().split()) for line in lines if line.strip()] for lines in found]


def lines_of(path: Path) -> list[str]:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()


def trigrams(texts: dict[str, list[str]]) -> dict[str, Any]:
    """Test perplexity of interpolated Kneser-Ney 3-grams (Chen and Goodman 1998), one discount an order."""
    tokens = {part: [word for line in texts[part] for word in (*line.split(), "\n")] for part in ("train", "test")}
    vocabulary = len(set(tokens["train"]) | {"<unk>"})
    train, test = tokens["train"], ["\n", "\n", *tokens["test"]]
    counts = [Counter(zip(*(train[k:] for k in range(order)), strict=False)) for order in (1, 2, 3)]
    for order in (1, 0):  # of lower orders count in how many contexts an n-gram was seen
        counts[order] = Counter(gram[1:] for gram in counts[order + 1])
    totals, kinds, discounts = [], [], []
    for table in counts:
        totals.append(Counter[tuple[str, ...]]())
        kinds.append(Counter[tuple[str, ...]]())
        for gram, count in table.items():
            totals[-1][gram[:-1]] += count
            kinds[-1][gram[:-1]] += 1
        once, twice = (sum(count == times for count in table.values()) for times in (1, 2))
        discounts.append(once / (once + 2 * twice))
    nats = 0.0
    for t in range(2, len(test)):
        p = 1 / vocabulary
        for order in range(3):
            gram = tuple(test[t - order : t + 1])
            if total := totals[order][gram[:-1]]:
                discount = discounts[order]
                p = (max(counts[order][gram] - discount, 0) + discount * kinds[order][gram[:-1]] * p) / total
        nats -= math.log(p)
    return {"of 3-grams": math.exp(nats / (len(test) - 2))}


if __name__ == "__main__":
    main()

"""Multi30k, German to English, trained from scratch on one core, scored once on test 2016.

    python benchmarks/quality_translation.py [--model seq2seq|transformer] [--data FOLDER] [--work FOLDER] [--seed 0]
                                             [--pilot NAME=VALUE ...]
    python benchmarks/quality_translation.py --work FOLDER --score

FOLDER holds `multi30k/tok/*.gz` (default: ../shared/data, or the environment variable CHAINRULE_DATA): lower-cased and
tokenised by Moses, so that BLEU is sacrebleu's with tok:none. Everything was chosen on the validation pairs; the
weights of the best validation translate the test sentences once, greedily and with a beam of five. A pilot changes
options (`--pilot core_minutes=3 cell=lstm`), prints validation figures and touches no test sentence; `--score` takes
the weights that are in the folder of an earlier call, and trains none.
"""

import argparse
import ast
import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from side_by_side import claim, publish

from chainrule.data import Vocabulary
from chainrule.devices import multiply_dtype
from chainrule.metrics import bleu, chrf
from chainrule.models import Seq2Seq, TransformerSeq2Seq
from chainrule.training import evaluate, learning_rate, make_optimiser
from chainrule_app.readers.pairs import (
    PairedSentences,
    Pairs,
    pair_batches,
    pair_evaluation,
    prepare_pairs,
    read_sentences,
)
from chainrule_app.readers.ragged import Ragged
from chainrule_app.tasks.translate.prediction import Translator

TranslationModel = Seq2Seq | TransformerSeq2Seq
FILES = "multi30k/tok/{}.lc.norm.tok.{}.gz"
MODELS: dict[str, tuple[type[TranslationModel], dict[str, Any]]] = {
    "seq2seq": (
        Seq2Seq,
        {
            "cell": "gru",
            "embedding_size": 256,
            "hidden_size": 256,
            "num_layers": 1,
            "dropout": 0.4,
            "attention": "multiplicative",
            "input_feeding": True,
            "label_smoothing": 0.1,
        },
    ),
    "transformer": (
        TransformerSeq2Seq,
        {
            "model_size": 192,
            "num_layers": 3,
            "num_heads": 4,
            "feed_forward_size": 384,
            "dropout": 0.3,
            "label_smoothing": 0.1,
        },
    ),
}
TRAINING: dict[str, Any] = {
    "min_count": 2,
    "batch_size": 64,
    "optimiser": "adamw",
    "learning_rate": 2e-3,
    "weight_decay": 0.01,
    "warmup": 0.03,
    "clip_norm": 1.0,
    "core_minutes": 34.0,
    "validations": 8,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--work", type=Path, default=Path("runs/multi30k"), help="prepared pairs and weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--pilot", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--model", choices=MODELS, default="seq2seq")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = {(part, side): options.data / FILES.format(part, side) for part in PARTS for side in ("de", "en")}
    missing = [path for path in files.values() if not path.exists()]
    if missing:
        print(f"skipped, there is no {missing[0]}: name the folder with --data")
        return
    model_class, chosen = MODELS[options.model]
    model_options, training = dict(chosen), dict(TRAINING)
    if options.model == "transformer":
        training |= {"optimiser": "muon", "learning_rate": 4e-3, "warmup": 0.06}
    for change in options.pilot or []:
        name, _, value = change.partition("=")
        group = model_options if name in model_options else training
        group[name] = type(group[name])(ast.literal_eval(value)) if not isinstance(group[name], str) else value
    pairs = prepare_pairs(
        options.work / "data",
        files["train", "de"],
        files["train", "en"],
        validation_source=files["val", "de"],
        validation_target=files["val", "en"],
        min_count=training["min_count"],
    )
    torch.manual_seed(options.seed)
    model = model_class(len(pairs.source_vocabulary), len(pairs.target_vocabulary), **model_options)
    weights, figures = options.work / f"{options.model}.safetensors", options.work / f"{options.model}.json"
    lines = {place: [line for _, line in read_sentences(path)] for place, path in files.items()}
    if options.score:
        model.load_state_dict(load_file(weights))
        row = json.loads(figures.read_text())
    else:
        print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters, {model_options} {training}")
        row = fit(model, pairs, lines, training, options.seed)
        save_file(model.state_dict(), weights)
        figures.write_text(json.dumps(row))
    print(row)
    if options.pilot is not None:
        return
    model.eval()
    sources, references = lines["test_2016_flickr", "de"], lines["test_2016_flickr", "en"]
    scores = {}
    for name, beam_size, penalty in (("greedy", 1, 0.0), ("beam 5", 5, PENALTY)):
        began = time.process_time()
        hypotheses = translated(model, pairs, sources, beam_size, penalty)
        row[f"translation, {name}, core seconds"] = time.process_time() - began
        scores[name] = bleu(hypotheses, references, tokenize="none")
        row[f"test BLEU, {name}"] = scores[name].value
        row[f"test chrF2, {name}"] = chrf(hypotheses, references).value
        (options.work / f"test.{name.replace(' ', '')}.en").write_text("".join(f"{line}\n" for line in hypotheses))
    test = PairedSentences(encoded(pairs.source_vocabulary, sources), encoded(pairs.target_vocabulary, references))
    row["test perplexity"] = evaluate(model, pair_evaluation(test)).perplexity
    row["signature"] = scores["greedy"].signature
    greedy, beam = scores["greedy"].value, scores["beam 5"].value
    publish(
        "quality_translation" + ("" if options.model == "seq2seq" else f"_{options.model}"),
        [row],
        [
            claim(f"Multi30k de-en, test 2016, {options.model}, BLEU, greedy", greedy, ">=", TARGETS[options.model]),
            claim(f"the same, beam 5 and length penalty {PENALTY}, above greedy", beam, ">=", greedy),
        ],
    )


PARTS = ("train", "val", "test_2016_flickr")
TARGETS = {"seq2seq": 33, "transformer": 39.2}
PENALTY = 1.0  # chosen on the validation pairs
MAX_LENGTH = 51  # ten more than the longest target of the training pairs


def fit(
    model: TranslationModel, pairs: Pairs, lines: dict[tuple[str, str], list[str]], training: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Train for so many core minutes; ends with the weights of the best validation BLEU. The row of figures."""
    sources, references = lines["val", "de"], lines["val", "en"]
    optimiser = make_optimiser(model, training["learning_rate"], training["weight_decay"], training["optimiser"])
    batches = pair_batches(pairs.train, training["batch_size"], seed)
    device = torch.device("cpu")
    dtype = multiply_dtype("auto", device)
    step, spent, judged, best, best_epoch = 0, 0.0, 0, -1.0, 0.0
    kept: dict[str, torch.Tensor] = {}
    began, limit = time.process_time(), training["core_minutes"] * 60
    while spent < 1:
        batch = batches.at(step)
        torch.manual_seed(seed * 10**6 + step)
        rate = learning_rate(spent, training["learning_rate"], warmup=training["warmup"])
        for group in optimiser.param_groups:
            group["lr"] = max(rate, 1e-5)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = -model.training_objective(batch.x, batch.context, batch.lengths).sum() / batch.lengths.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training["clip_norm"])
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        spent = (time.process_time() - began) / limit
        if spent >= 1 or spent > judged_at(judged, training["validations"]):
            judged += 1
            model.eval()
            found = bleu(translated(model, pairs, sources), references, tokenize="none").value
            evaluation = evaluate(model, pair_evaluation(pairs.valid))
            model.train()
            epoch = step / batches.steps_per_epoch
            print(
                f"epoch {epoch:.2f}: training {loss.item():.3f}, valid perplexity {evaluation.perplexity:.2f}, "
                f"BLEU {found:.2f}, {time.process_time() - began:.0f} core seconds",
                flush=True,
            )
            if found > best:
                best, best_epoch, kept = found, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    model.eval()
    penalties = {
        penalty: bleu(translated(model, pairs, sources, 5, penalty), references, tokenize="none").value
        for penalty in (0.0, 0.6, 1.0)
    }
    print(f"valid BLEU, beam 5, by length penalty: {penalties}")
    return {
        "set": "Multi30k de-en",
        "seed": seed,
        "threads": torch.get_num_threads(),
        "core minutes": (time.process_time() - began) / 60,
        "epochs": step / batches.steps_per_epoch,
        "best epoch": best_epoch,
        "valid BLEU, greedy": best,
        "valid BLEU, beam 5": penalties[PENALTY],
    }


def judged_at(judged: int, validations: int) -> float:
    """The share of the training after which the next validation comes."""
    return 0.15 + 0.85 * judged / validations


def encoded(vocabulary: Vocabulary, lines: list[str]) -> Ragged:
    return Ragged.of([vocabulary.encode(f"{line}\n") for line in lines])


def translated(
    model: TranslationModel, pairs: Pairs, sources: list[str], beam_size: int = 1, length_penalty: float = 0.0
) -> list[str]:
    translator = Translator(model, pairs.source_vocabulary, pairs.target_vocabulary, MAX_LENGTH)
    found = translator.search(sources, beam_size=beam_size, length_penalty=length_penalty)
    return [best.text for best, *_ in found]


if __name__ == "__main__":
    main()

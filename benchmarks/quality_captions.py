"""Captions of Flickr8k at 64 pixels, beside the same decoder without the picture.

    python benchmarks/quality_captions.py [--data FOLDER] [--seed 0] [--steps 1400] [--work FOLDER]

FOLDER holds `flickr8k_64px/{train,dev}_images_64px.zip` and `{train,dev}_captions.txt.gz` (default: ../shared/data, or
the environment variable CHAINRULE_DATA). 500 of the 6,000 training pictures choose the weights, by BLEU-4 of greedy
captions; the dev pictures, 1,000 with five captions each, are scored once, with a beam of 5. Three rows: the captioner;
the same captioner shown another picture than the one meant; and the prior, the same decoder trained without
pictures. There is no published figure at this size, and no pretrained network here.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from side_by_side import claim, publish

from chainrule.data import WordVocabulary
from chainrule.layers import ImageEncoder
from chainrule.metrics import caption_bleu
from chainrule.models import Captioner
from chainrule.training import MetricValue, TrainingOptions, ValidationMetric, evaluate, train
from chainrule_app.readers.captions import (
    CaptionedImages,
    ImageStore,
    PreparedCaptions,
    caption_batches,
    caption_evaluation,
    captions_by_image,
    prepare_captions,
)
from chainrule_app.tasks.caption.verbs import search, words_of

BATCH, RATE, DROPOUT, LONGEST, BEAM, PENALTY, JUDGED = 64, 2e-3, 0.4, 40, 5, 0.7, 250
SIZES = {"embedding_size": 192, "hidden_size": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument(
        "--work", type=Path, help="keep prepared data and runs here; a resumed script goes on with them"
    )
    options = parser.parse_args()
    folder = options.data / "flickr8k_64px"
    if not folder.exists():
        print(f"Flickr8k: skipped, there is no {folder}: name the folder of data with --data")
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        prepared = prepare_captions(
            work / "data",
            folder / "train_images_64px.zip",
            folder / "train_captions.txt.gz",
            validation_fraction=500 / 6000,
            max_length=LONGEST,
            seed=options.seed,
        )
        rows = measure(prepared, folder, work, options)
    captioner, shuffled, prior = (row["BLEU-4"] for row in rows)
    publish(
        "quality_captions",
        rows,
        [
            claim("Flickr8k 64 px, dev BLEU-4, captioner ÷ caption prior", captioner / prior, ">=", 1.1, "×"),
            claim("Flickr8k 64 px, dev BLEU-4, right picture ÷ another one", captioner / shuffled, ">=", 1.1, "×"),
        ],
    )


def measure(prepared: PreparedCaptions, folder: Path, work: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train both models, score the dev pictures once; the rows of figures."""
    captioner, minutes, step = fitted(prepared, work / "captioner", options)
    prior, prior_minutes, prior_step = fitted(
        PreparedCaptions(prepared.vocabulary, blank(prepared.train), blank(prepared.valid), prepared.manifest),
        work / "prior",
        options,
    )
    store = ImageStore(folder / "dev_images_64px.zip", 64)
    people = captions_by_image(folder / "validation_captions.txt.gz", store)
    references = [[caption.text for caption in own] for own in people.values()]
    pictures = [store.image(name) for name in people]
    others = np.random.default_rng(options.seed).permutation(len(pictures))
    turned = dict(zip(others.tolist(), np.roll(others, -1).tolist(), strict=True))  # a cycle: none keeps its picture
    rows = []
    for name, model, shown, spent, best in (
        ("captioner", captioner, pictures, minutes, step),
        (
            "captioner, another picture",
            captioner,
            [pictures[turned[place]] for place in range(len(pictures))],
            0.0,
            step,
        ),
        (
            "caption prior (no picture)",
            prior,
            [np.zeros((3, 8, 8), np.uint8)] * len(pictures),
            prior_minutes,
            prior_step,
        ),
    ):
        found = search(model, shown, prepared.vocabulary, beam_size=BEAM, max_length=LONGEST, length_penalty=PENALTY)
        written = [words_of(each, prepared.vocabulary)[0] for each in found]
        scores = {f"BLEU-{order}": caption_bleu(written, references, order).value for order in (1, 2, 3, 4)}
        signature = caption_bleu(written, references).signature
        rows.append(
            {
                "model": name,
                "parameters": sum(weight.numel() for weight in model.parameters()),
                **scores,
                "different captions": len(set(written)),
                "best step": best,
                "seed": options.seed,
                "core minutes": spent,
                "signature": signature,
            }
        )
    return rows


def fitted(prepared: PreparedCaptions, folder: Path, options: argparse.Namespace) -> tuple[Captioner, float, int]:
    """A trained model with the weights of the best validation, the core minutes it took, and its step."""
    torch.manual_seed(options.seed)
    side = prepared.train.images.shape[2]
    encoder = ImageEncoder((32, 64, 128) if side > 8 else (8, 8, 8))
    model = Captioner(len(prepared.vocabulary), encoder, dropout=DROPOUT, **SIZES)
    batches = caption_batches(prepared.train, BATCH, options.seed)
    began = time.process_time()
    result = train(
        model,
        batches,
        lambda: caption_evaluation(prepared.valid),
        TrainingOptions(
            steps=options.steps,
            batch_size=BATCH,
            learning_rate=RATE,
            validate_every=max(options.steps // 7, 1),
            seed=options.seed,
        ),
        folder,
        metric=captions_metric(prepared.valid, prepared.vocabulary),
        resume=(folder / "checkpoint.safetensors").exists(),
    )
    model.eval()
    perplexity = evaluate(model, caption_evaluation(prepared.valid)).perplexity
    print(f"{folder.name}: held-out perplexity {perplexity:.2f}, BLEU-4 {result.best_value:.2f}", flush=True)
    return model, (time.process_time() - began) / 60, result.best_step


def captions_metric(valid: CaptionedImages, vocabulary: WordVocabulary) -> ValidationMetric:
    """BLEU-4 of greedy captions of some of the pictures."""
    references = [
        [
            vocabulary.decode(valid.captions.padded(np.array([place]))[0][0].tolist()).strip()
            for place in valid.captions_of(picture)
        ]
        for picture in range(JUDGED)
    ]

    def answer(model: Any, rows: np.ndarray) -> list[str]:
        found = search(model, (valid.images[row] for row in rows), vocabulary, beam_size=1, max_length=LONGEST)
        return [words_of(each, vocabulary)[0] for each in found]

    def compare(rows: np.ndarray, written: Sequence[str], step: int) -> MetricValue:
        value = caption_bleu(written, [references[row] for row in rows]).value
        return MetricValue("bleu", value, "\n".join(written[:3]))

    return ValidationMetric(JUDGED, answer, compare)


def blank(captioned: CaptionedImages) -> CaptionedImages:
    """The same captions with nothing to see."""
    return CaptionedImages(np.zeros((len(captioned), 3, 8, 8), np.uint8), captioned.captions, captioned.offsets)


if __name__ == "__main__":
    main()

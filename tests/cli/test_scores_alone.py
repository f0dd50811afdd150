"""A log-probability is that of its own row: the same alone, among others, and in another order."""

import math
import random
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
import torch
from PIL import Image
from small_data import WRITERS, written

from chainrule.training import save_weights
from chainrule_app.readers.sounds.sound_file import write_wav
from chainrule_app.tasks import task_class
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.run_directory import WEIGHTS
from chainrule_app.training_run import create_run

SMALL = {
    "hidden_size": 6,
    "embedding_size": 6,
    "character_size": 6,
    "model_size": 8,
    "num_heads": 2,
    "num_layers": 1,
    "feed_forward_size": 8,
    "blocks": 1,
    "layers_per_block": 2,
    "channels": 4,
    "dropout": 0.0,
}


def lines(folder, rows):
    return written(folder / "rows.txt", rows)


def words(folder, rows):
    return written(folder / "rows.conll", [line for row in rows for line in (*row.split(), "")])


def cells(folder, rows):
    return written(folder / "rows.csv", ["first,second,third", *rows])


def numbers(folder, rows):
    np.save(folder / "rows.npy", np.stack(rows))
    return folder / "rows.npy"


def clips(folder, rows):
    for number, row in enumerate(rows):
        write_wav(folder / f"{number}.wav", row, 8000)
    return folder


def pictures(folder, rows):
    for number, row in enumerate(rows):
        Image.new("RGB", (8, 8), row).save(folder / f"{number}.png")
    return folder


def scored(run, path):
    return run.score(str(path), run.Scoring(), device="cpu")["nats"]


def scored_lines(run, path):
    return run.score(str(path), run.Scoring(per="line"), device="cpu")["nats"]


def predicted(run, path):
    return run.predict([str(path)], run.Prediction(), device="cpu")["nats"]


def labelled(run, path):
    found = run.predict([str(path)], run.Prediction(), device="cpu")["probabilities"]
    return [-math.log(share) for row in found for share in row.values()]


def captioned(run, path):
    return run.predict(sorted(map(str, path.iterdir())), run.Prediction(), device="cpu")["nats"]


IMAGES = [np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8) for seed in range(3)]
SOUNDS = [np.sin(np.arange(size)).astype(np.float32) for size in (40, 130, 75)]
COLOURS = [(200, 0, 0), (10, 250, 90), (0, 0, 30)]
CASES = {
    "text": (lines, scored_lines, ["3 is a number", "42", "17 is a number is a number is"]),
    "table": (cells, scored, ["a,x,1", "b,z,0", "a,y,2"]),
    "image": (numbers, scored, IMAGES),
    "sound": (clips, scored, SOUNDS),
    "tag": (words, predicted, ["the dog", "dog", "the the dog dog barks dog the"]),
    "classify": (lines, labelled, ["a good text", "bad", "a text number 3 bad good text of many words"]),
    "classify-images": (numbers, labelled, IMAGES),
    "translate": (lines, predicted, ["a", "c b a c c", "b a"]),
    "caption": (pictures, captioned, COLOURS),
}


def untrained(task, folder):
    """A run with large random weights, so that a row's figures tell it from others."""
    given, chosen = WRITERS[task](folder), task_class(task)
    sources = dict.fromkeys(chosen.SOURCES) | {"source": str(given[0])}
    if "--captions" in given:
        sources["captions"] = str(given[given.index("--captions") + 1])
    data = {"text": {"reading": "lines"}, "image": {"bits": 2}, "caption": {"image_size": 8}}.get(task, {})
    name, model = next(iter(chosen.MODELS.items()))
    options = model.options()
    options = replace(options, **{key: value for key, value in SMALL.items() if hasattr(options, key)})
    asked = RunConfig(
        sources=sources,
        data=chosen.Data(**data),
        model=name,
        options=options,
        duration=Duration(steps=1),
        training=chosen.Training(batch_size=4),
    )
    create_run(chosen, asked, folder / "run", overwrite=False)
    network = chosen.open(folder / "run").new_model(0)
    torch.manual_seed(1)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    save_weights(folder / "run" / WEIGHTS, network, {})
    return chosen.open(folder / "run")


@pytest.mark.parametrize("task", CASES)
def test_a_row_has_the_same_figures_alone_and_among_others(task, tmp_path):
    run = untrained(task, tmp_path)
    write, measure, rows = CASES[task]

    def figures(name, rows):
        (tmp_path / name).mkdir()
        found = measure(run, write(tmp_path / name, rows))
        assert len(found) % len(rows) == 0
        return found

    together = figures("together", rows)
    alone = [figure for number, row in enumerate(rows) for figure in figures(f"alone {number}", [row])]
    backwards = np.reshape(figures("backwards", rows[::-1]), (len(rows), -1))[::-1].ravel()
    assert together == pytest.approx(alone, rel=1e-6, abs=1e-5)
    assert together == pytest.approx(backwards, rel=1e-6, abs=1e-5)
    assert len({round(figure, 3) for figure in together}) > 1


def test_a_forecast_has_the_same_nats_alone_and_among_others(tmp_path):
    run = untrained("forecast", tmp_path)
    horizon = run.data.horizon
    trained = (tmp_path / "series.csv").read_text().splitlines()
    draw = random.Random(1)
    times = (datetime(2020, 1, 29) + timedelta(hours=hour) for hour in range(3 * horizon))
    rows = [*trained, *(f"{time:%Y-%m-%d %H:%M},{time.hour + draw.random()}" for time in times)]

    def nats(stop, start):
        path = written(tmp_path / "rows.csv", rows[: stop + 1])  # below the heading
        options = run.Evaluation(start=str(start + 1), paths=2)
        summary = run.evaluate(str(path), options, device="cpu").summary
        return summary["origins"], summary["nats_per_value"]

    first = len(trained) - 1
    origins, together = nats(first + 3 * horizon, first)
    alone = [nats(first + (n + 1) * horizon, first + n * horizon) for n in range(3)]
    assert (origins, [count for count, _ in alone]) == (3, [1, 1, 1])
    assert len({round(value, 3) for _, value in alone}) == 3
    assert together == pytest.approx(sum(value for _, value in alone) / 3, rel=1e-6, abs=1e-5)

"""What every kind of prepared data promises: it opens as it was written, damage is named, seed and step say a batch."""

import random

import numpy as np
import pytest

from chainrule.data import SeriesWindows
from chainrule_app.readers.corpus import open_corpus, prepare_corpus
from chainrule_app.readers.images.batches import image_batches
from chainrule_app.readers.images.prepare import open_images, prepare_images
from chainrule_app.readers.labelled.prepare import labelled_batches, open_labelled, prepare_labelled
from chainrule_app.readers.pairs import open_pairs, pair_batches, prepare_pairs
from chainrule_app.readers.series.prepare import open_series, prepare_series
from chainrule_app.readers.sounds.prepare import clip_batches, open_sounds, prepare_sounds
from chainrule_app.readers.sounds.sound_file import write_wav
from chainrule_app.readers.tables.batches import table_batches
from chainrule_app.readers.tables.prepare import open_table, prepare_table
from chainrule_app.readers.tagged.prepare import open_tagged, prepare_tagged, tagged_batches

DRAW = random.Random(0)
ROWS = [f"{n} " + "word " * DRAW.randrange(1, 7) for n in range(40)]


def text(folder, lines):
    (folder / "source").write_text("".join(f"{line}\n" for line in lines))
    return folder / "source"


def images(folder):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 5, 6), dtype=np.uint8)
    np.savez(folder / "x.npz", images=pixels, labels=np.arange(40) % 3)
    return folder / "x.npz"


def sounds(folder):
    (folder / "clips").mkdir()
    for number in range(40):
        name = f"{'low' if number % 2 else 'high'}_{number}.wav"
        write_wav(folder / "clips" / name, np.sin(np.arange(50 + 3 * number) / 4), 8000)
    return folder / "clips"


def labelled(folder):
    return text(folder, [f"{row}\t{'yes' if n % 3 else 'no'}" for n, row in enumerate(ROWS)])


def pairs(folder):
    return text(folder, [f"{row}\t{row.upper()}" for row in ROWS])


def tagged(folder):
    return text(folder, [line for row in ROWS for line in (*(f"{word}\t{word[:1]}" for word in row.split()), "")])


def table(folder):
    return text(folder, ["a,b", *(f"{n * n % 17},{'xyz'[n % 3]}" for n in range(40))])


def series(folder):
    return text(folder, ["v,w", *(f"{np.sin(n):.3f},{np.cos(n):.3f}" for n in range(60))])


# Source, preparation, opening and manifest of each kind.
KINDS = {
    "text": (lambda folder: text(folder, ROWS), prepare_corpus, open_corpus, "corpus.json"),
    "table": (table, prepare_table, open_table, "table.json"),
    "images": (images, prepare_images, open_images, "images.json"),
    "labelled": (labelled, prepare_labelled, open_labelled, "labelled.json"),
    "pairs": (pairs, lambda path, out, **options: prepare_pairs(out, path, **options), open_pairs, "pairs.json"),
    "sounds": (sounds, lambda *a, **o: prepare_sounds(*a, label_pattern="{label}_*", **o), open_sounds, "sounds.json"),
    "tagged": (tagged, prepare_tagged, open_tagged, "corpus.json"),
    "series": (series, lambda *a, **o: prepare_series(*a, target="all", horizon=4, **o), open_series, "series.json"),
}
READERS = {  # of batches of four
    "table": lambda data, **options: table_batches(data.train, 4, **options),
    "images": lambda data, **options: image_batches(data.train, data.train_labels, 4, **options),
    "labelled": lambda data, **options: labelled_batches(data.train.texts, data.train.labels, 4, **options),
    "pairs": lambda data, **options: pair_batches(data.train, 4, **options),
    "sounds": lambda data, **options: clip_batches(data.train, 4, 300, data.train_labels, **options),
    "tagged": lambda data, **options: tagged_batches(data.train, data.vocabulary.counts, 4, **options),
    "series": lambda data, **options: SeriesWindows(data.values, data.features, 5, 8, 4, **options),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def prepared(kind, tmp_path):
    source, prepare, _, _ = KINDS[kind]
    return prepare(source(tmp_path), tmp_path / "data")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@every_kind
def test_a_folder_is_opened_as_it_was_prepared(kind, prepared, tmp_path):
    _, _, reopen, manifest = KINDS[kind]
    again = reopen(tmp_path / "data")
    for name in ("manifest", "schema"):
        assert getattr(prepared, name, None) == getattr(again, name, None)
    if kind in READERS:
        assert rows(READERS[kind](prepared).at(3)) == rows(READERS[kind](again).at(3))
    (tmp_path / "data" / manifest).unlink()
    with pytest.raises(FileNotFoundError, match="the data again"):
        reopen(tmp_path / "data")


@every_kind
def test_every_file_that_was_cut_is_named(kind, prepared, tmp_path):
    _, _, reopen, manifest = KINDS[kind]
    for name, content in contents(tmp_path / "data").items():
        if content and name not in (manifest, "counts") and not name.endswith(".text"):  # these are read when needed
            (tmp_path / "data" / name).write_bytes(content[:-9])
            with pytest.raises(ValueError, match=rf"{name}: .*(damaged|again)"):
                reopen(tmp_path / "data")
            (tmp_path / "data" / name).write_bytes(content)
    reopen(tmp_path / "data")


@pytest.mark.parametrize("kind", ["table", "images", "labelled", "pairs", "sounds", "tagged"])
def test_the_seed_decides_what_is_held_out(kind, prepared, tmp_path):
    _, prepare, _, _ = KINDS[kind]
    first, path = contents(tmp_path / "data"), next(path for path in tmp_path.iterdir() if path.name != "data")
    for seed in (0, 1):
        prepare(path, tmp_path / f"seed-{seed}", seed=seed)
        assert (contents(tmp_path / f"seed-{seed}") == first) == (seed == 0)


def rows(batch):
    """Each row of a batch, without its padding."""
    parts = [batch.x, batch.lengths, *(batch.context.values() if isinstance(batch.context, dict) else [batch.context])]
    return [
        [value for part in parts if part is not None for value in part[row].flatten().tolist() if value > 0]
        for row in range(len(batch.x))
    ]


@pytest.mark.parametrize("kind", READERS)
def test_a_batch_is_a_function_of_seed_and_step_and_processes_share_it(kind, prepared):
    reader = READERS[kind]
    batches = reader(prepared, seed=3)
    first = {step: rows(batches.at(step)) for step in (11, 2, 7)}
    assert rows(batches.at(2)) == first[2]
    assert rows(reader(prepared, seed=3).at(11)) == first[11]
    assert first[2] != first[7] != first[11]
    assert any(rows(reader(prepared, seed=4).at(step)) != found for step, found in first.items())
    for step, whole in first.items():
        parts = [reader(prepared, seed=3, shard=(rank, 2)).at(step) for rank in (0, 1)]
        assert [rows(part) for part in parts] == [whole[0::2], whole[1::2]]

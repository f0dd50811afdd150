"""The counts of n-grams of a text's run: counted once, kept in a file of the run, averaged with its network."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from chainrule.data import Tokens
from chainrule.layers import KneserNey
from chainrule.models import CalibratedMixture, RecurrentLM
from chainrule.tensor_files import read_tensors, write_tensors
from chainrule_app.tasks import open_run
from chainrule_app.tasks.config import Duration
from chainrule_app.tasks.run_directory import CHECKPOINT, NGRAMS
from chainrule_app.tasks.text import plan as text_ngrams
from chainrule_app.tasks.text.task import ngrams_record

SMALL = ("--hidden-size", 12, "--dropout", 0, "--validation-fraction", 0.2)
SAME = ("--precision", "float32", "--backend", "vendor", "--threads", 1)  # nothing is timed, and so nothing differs


def test_training_ends_with_the_share_that_fits_best(command, ok, text_file, tmp_path):
    """Of words, a few lines are too little: the network of three steps knows nothing, and the counts all there is."""
    out = tmp_path / "run"
    words = ("train", text_file, "--level", "word", "--steps", 3, *SMALL, *SAME)
    trained = ok(*words, "--out", out)
    assert "\nLSTM 12 + 5-gram counts with " in trained.err
    assert "--kneser-ney-order 5" in trained.err
    model = open_run(out).model()
    assert isinstance(model, CalibratedMixture)
    assert model.share > 0.5
    assert f"counts of n-grams: {float(model.share):.0%} of the mean\n" in trained.err
    (best,) = [record for record in open_run(out).metrics() if record.get("best")][-1:]
    assert best["share_of_counts"] == pytest.approx(float(model.share), abs=1e-6)
    assert f"averaged     counts {float(model.share):.0%} of the mean\n" in command("info", out).out
    (scored,) = map(json.loads, command("score", out, text_file, "--json").out.splitlines())
    alone = tmp_path / "alone"
    same = command(*words, "--out", alone, "--kneser-ney-order", 0)
    assert "counts" not in same.err
    assert not (alone / NGRAMS).exists()
    assert type(open_run(alone).model()) is RecurrentLM
    (without,) = map(json.loads, command("score", alone, text_file, "--json").out.splitlines())
    assert scored["nats"] < 0.6 * without["nats"]
    last, apart = load_file(out / CHECKPOINT), load_file(alone / CHECKPOINT)
    names = [name.removeprefix("model.") for name in apart if name.startswith("model.")]
    assert len(names) > 5
    assert all(torch.equal(last[f"model.network.{name}"], apart[f"model.{name}"]) for name in names)  # the same steps


def test_the_order_that_is_told_is_that_of_the_tables(command, ok, tmp_path):
    """A text that hardly repeats has shorter n-grams than were asked for, which were told in their place."""
    source, out = tmp_path / "noise.txt", tmp_path / "run"
    letters = np.random.default_rng(0).integers(97, 123, 4000)
    source.write_text("".join(map(chr, letters)))
    trained = ok("train", source, "--steps", 2, *SMALL, *SAME, "--out", out)
    run = open_run(out)
    order = KneserNey.from_tables(read_tensors(out / NGRAMS)[0]).order
    assert order < run.training.kneser_ney_order == 12
    assert f"\nLSTM 12 + {order}-gram counts + 3-gram embeddings with " in trained.err
    assert f"LSTM 12 + {order}-gram counts" in command("info", out).out
    (out / NGRAMS).write_bytes(b"")
    assert "+ 12-gram counts" in run.recipe


@pytest.mark.parametrize(("name", "level"), [("stream", {}), ("lines", {"reading": "lines"})])
def test_counts_are_those_of_the_text(runs, name, level):
    run = open_run(runs / name)
    tokens, symbols = run.corpus().train, len(run.vocabulary)
    if level:
        starts, stops = tokens.line_bounds(np.arange(tokens.line_count))
        bounds = zip(starts, stops, strict=True)
        text = np.concatenate([[symbols, *tokens.slice(int(start), int(stop))] for start, stop in bounds])
    else:
        text = tokens.slice(0, len(tokens))
    share = text_ngrams.MOST_DIFFERENT["char"]
    expected = KneserNey.fit(torch.from_numpy(text), symbols, 12, lines=bool(level), most_different=share).tables()
    found = run.model().companion.ngrams.tables()
    assert all(torch.equal(found[table], expected[table]) for table in expected)


def test_the_end_of_a_long_text_is_counted():
    tokens = Tokens([0, 1, 5, 2, 5, 3, 4, 5], eos=5)
    assert text_ngrams._last(tokens, 3).tolist() == [3, 4, 5]
    assert text_ngrams._last(tokens, 99).tolist() == [0, 1, 5, 2, 5, 3, 4, 5]
    assert text_ngrams._last_lines(tokens, 99, 9).tolist() == [9, 0, 1, 5, 9, 2, 5, 9, 3, 4, 5]
    assert text_ngrams._last_lines(tokens, 5, 9).tolist() == [9, 2, 5, 9, 3, 4, 5]
    assert text_ngrams._last_lines(tokens, 4, 9).tolist() == [9, 3, 4, 5]
    assert text_ngrams._last_lines(tokens, 2, 9).tolist() == [9, 3, 4]


@pytest.mark.parametrize(("budget", "counted"), [(0.01, 500), (0.001, 300), (1.0, 1600), (None, 1600)])
def test_a_short_budget_counts_less(run_copy, monkeypatch, budget, counted):
    monkeypatch.setattr(text_ngrams, "_FEWEST_SYMBOLS", 300)
    run = open_run(run_copy)
    run.config = replace(run.config, duration=Duration(budget=budget, steps=None if budget else 3))
    tokens = run.corpus().train
    assert len(tokens) > counted
    monkeypatch.setattr(text_ngrams, "_MOST_SYMBOLS", 1600)
    text_ngrams.count_ngrams(run)
    end = torch.from_numpy(tokens.slice(len(tokens) - counted, len(tokens)))
    expected = KneserNey.fit(end, len(run.vocabulary), 12, most_different=0.6)
    assert torch.equal(run.new_model(0).companion.ngrams.keys, expected.keys)


def test_a_file_that_is_gone_or_changed_gets_one_line(refused, run_copy, text_file):
    path = run_copy / NGRAMS
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + b"xxxxx")
    assert NGRAMS in refused("score", run_copy, text_file)
    path.unlink()
    assert "restore it" in refused("score", run_copy, text_file)
    assert "restore it" in refused("train", "--resume", "--out", run_copy)
    run = open_run(run_copy)
    record = ngrams_record(run)
    other = KneserNey.fit(torch.tensor([0, 1, 2, 0]), 3, 2)
    write_tensors(path, other.tables(), record)
    assert "at most 12 out of 29 symbols, got 2 out of 3" in refused("score", run_copy, text_file)
    longer = KneserNey.fit(torch.arange(40) % 29, 29, 14)
    write_tensors(path, longer.tables(), record)
    assert "at most 12 out of 29 symbols, got 14 out of 29" in refused("score", run_copy, text_file)
    write_tensors(path, other.tables() | {"keys": other.keys + 100}, record)
    assert "after their contexts" in refused("score", run_copy, text_file)
    for wrong in ({"kind": "weights"}, {"source": "0" * 64}, {"train": {}}, {"reading": "lines"}):
        write_tensors(path, run_tables(run), record | wrong)
        assert "n-grams of another text" in refused("score", run_copy, text_file)
    path.write_bytes(whole)
    assert run.model() is not None


def run_tables(run):
    tokens = run.corpus().train
    return KneserNey.fit(torch.from_numpy(tokens.slice(0, len(tokens))), len(run.vocabulary), 12).tables()


def test_an_order_out_of_range_is_refused(refused, text_file, tmp_path):
    assert "--kneser-ney-order" in refused("train", text_file, "--kneser-ney-order", 17, "--out", tmp_path / "none")
    line = refused("train", text_file, "--kneser-ney-order", 1, "--out", tmp_path / "none")
    assert "2 to 16 symbols, or 0 for no counts, got 1" in line


def test_a_text_without_a_pair_of_symbols_is_named(refused, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a\n")  # one symbol to train on, one to hold out
    message = refused("train", path, "--steps", 1, "--hidden-size", 4, "--out", tmp_path / "run")
    assert f"{path}: expected at least two symbols to train on, got 1: add text" in message
    assert not (tmp_path / "run").exists()


def test_overwriting_counts_anew(ok, text_file, tmp_path):
    out = tmp_path / "run"
    for level in ("word", "char"):
        ok("train", text_file, "--level", level, "--steps", 1, "--out", out, "--overwrite", *SMALL)
        run = open_run(out)
        assert run.model().companion.ngrams.vocab_size == len(run.vocabulary)
    ok("train", text_file, "--steps", 1, "--out", out, "--overwrite", "--kneser-ney-order", 0, *SMALL)
    assert not (out / NGRAMS).exists()


def test_samples_know_the_phrases_of_the_text(runs):
    """An untrained network draws noise; the counts, a share of it, draw what stands in the text."""
    model = open_run(runs / "words").model()
    drawn = model.sample(50, length=8, generator=torch.Generator().manual_seed(0))
    alone = model.network.sample(50, length=8, generator=torch.Generator().manual_seed(0))
    seen = set(pairs(open_run(runs / "words").corpus().train))
    shares = [np.mean([pair in seen for row in rows.tolist() for pair in pairs(row)]) for rows in (drawn, alone)]
    assert shares[0] > 2 * shares[1]


def pairs(symbols):
    symbols = symbols if isinstance(symbols, list) else symbols.slice(0, len(symbols)).tolist()
    return list(zip(symbols, islice(symbols, 1, None), strict=False))


def test_characters_that_hardly_repeat_are_counted_less_deep(new_run, tmp_path):
    letters = np.random.default_rng(0).choice(list("abcdefgh\n"), 3000)
    (tmp_path / "noise.txt").write_text("".join(letters))
    run = new_run(tmp_path / "noise.txt", tmp_path / "run")
    tokens = run.corpus().train
    text = torch.from_numpy(tokens.slice(0, len(tokens)))
    sizes = [len(text.unfold(0, order, 1).unique(dim=0)) for order in range(2, 6)]
    allowed = [order for order, size in enumerate(sizes, 2) if size <= 0.6 * len(text)]
    assert run.model().companion.ngrams.order == max(allowed) < 5
    assert text_ngrams.MOST_DIFFERENT["char"] == 0.6

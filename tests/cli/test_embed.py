"""`chainrule embed`: a row of numbers for each input."""

import csv
import json

import numpy as np
import pytest
import torch

from chainrule import load
from chainrule.models import RecurrentLM, TransformerLM, WaveNet
from chainrule_app.cli.render import show
from chainrule_app.results import Column, Result
from chainrule_app.tasks.text.run import TextRun


def test_a_line_becomes_the_state_that_the_next_symbol_is_predicted_from(ok, runs, tmp_path):
    lines = ["all is well", "", "line 3 of the café log, all is odd"]
    data, out = tmp_path / "data.txt", tmp_path / "codes.csv"
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    ok("embed", runs / "stream", data, "--out", out)
    heading, *rows = csv.reader(out.read_text().splitlines())
    assert heading == ["input", *(f"z{number}" for number in range(8))]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    run = TextRun.open(runs / "stream")
    model = run.model().network
    for line, row in zip(lines, rows, strict=True):
        state, x_prev = model.initial_state(1), None
        for symbol in run.vocabulary.encode(line).tolist():
            _, state = model.step(x_prev, state)
            x_prev = torch.tensor([symbol])
        following, _ = model.step(x_prev, state)
        predicted = model.conditional(torch.tensor([[float(number) for number in row[1:]]]))
        torch.testing.assert_close(predicted.logits, following.logits, rtol=1e-4, atol=1e-5)


def test_codes_are_an_array_or_json_where_asked(command, ok, runs, text_file, tmp_path):
    ok("embed", runs / "words", text_file, "--out", tmp_path / "codes.npy")
    codes = np.load(tmp_path / "codes.npy")
    assert codes.shape == (60, 8)
    records = [json.loads(line) for line in command("embed", runs / "words", text_file, "--json").out.splitlines()]
    assert [record["input"] for record in records] == [str(line) for line in range(1, 61)]
    np.testing.assert_allclose(np.array([record["code"] for record in records]), codes, rtol=1e-6)


def test_a_code_is_told_before_the_next_is_made(monkeypatch):
    made, told = [], []

    def codes():
        for number in range(3):
            made.append(number)
            yield str(number), np.array([0.5])

    monkeypatch.setattr("builtins.print", lambda line: told.append((line, len(made))))
    show(Result([Column("input"), Column("code", heading="z")], codes(), form="csv"))
    assert told == [("input,z0", 1), ("0,0.5", 1), ("1,0.5", 2), ("2,0.5", 3)]


@pytest.mark.parametrize("kind", ["stream", "lines", "words"])
def test_texts_in_memory_are_embedded_as_the_lines_of_a_file(runs, tmp_path, kind):
    texts = ["all is well", "", "line 3"]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in texts))
    run = load(runs / kind)
    found = run.embed(texts)
    assert found["input"] == texts
    np.testing.assert_allclose(found.to_numpy(), run.embed(tmp_path / "a.txt").to_numpy(), rtol=1e-5, atol=1e-6)
    if kind == "lines":
        with pytest.raises(ValueError, match="text 2: expected a single line"):
            run.embed(["a", "b\nc"])
    else:
        assert len(run.embed(["a", "b\nc"])) == 2


def test_bad_input_is_one_line(refused, runs, text_file, tmp_path):
    assert "no such file" in refused("embed", runs / "stream", tmp_path / "nothing.txt").lower()
    assert "--json" in refused("embed", runs / "stream", text_file, "--json", "--out", tmp_path / "codes.npy")
    assert "create it first" in refused("embed", runs / "stream", text_file, "--out", tmp_path / "none" / "codes.csv")
    (tmp_path / "empty.txt").write_text("")
    assert "at least one input" in refused("embed", runs / "stream", tmp_path / "empty.txt")
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RecurrentLM(7, "lstm", 4, 6, ngram_order=2),
        lambda: TransformerLM(7, model_size=8, num_heads=2, num_layers=1),
        lambda: WaveNet(7, channels=4, skip_channels=6, blocks=1, layers_per_block=2),
    ],
    ids=["RecurrentLM", "TransformerLM", "WaveNet"],
)
def test_features_at_an_element_are_of_those_before_it(make):
    model = make()
    x = torch.arange(12).view(2, 6) % 7
    model.eval()
    changed = x.clone()
    changed[:, 3:] = 0
    before, after = model.features(x), model.features(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])

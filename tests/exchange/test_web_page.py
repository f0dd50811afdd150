"""The page of `export --to web`: weights of 8 bits, the probabilities that a browser computes from them, refusals."""

import re
import subprocess
import sys
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from small_language_models import RECURRENT, SMALL, shaken

import chainrule
from chainrule.data import ByteVocabulary, CharVocabulary
from chainrule.models import RecurrentLM
from chainrule_app.exchange.web_page import network_in, page_of, rounded, rounding_cost, weights_of

LIVING = Path(__file__).parents[2] / "docs" / "_static" / "living_model.html"
TEXT = "abba cab\nbeg a z"  # z was not in the training text


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def conditionals(network, text):
    """log p of every symbol at every place of a text, written out in NumPy from what the page holds."""
    weights = {name: weights_of(record).astype(np.float64) for name, record in network["tensors"].items()}
    symbols, size = "\N{REPLACEMENT CHARACTER}" + network["characters"], network["hidden_size"]
    numbers = [max(symbols.find(character), 0) for character in text]
    embedding = weights.get("embedding", np.eye(len(symbols) + 1))
    output = weights.get("weight_ho", embedding[:-1])
    logs, state, before = [], None, len(symbols)
    for symbol in [*numbers, None]:
        if before == network["eos"] or state is None:
            state, before = [(np.zeros(size), np.zeros(size))] * network["num_layers"], len(symbols)
        x, new = embedding[before], []
        for layer, (h, c) in enumerate(state):
            a = weights[f"weight_ih_l{layer}"] @ x + weights[f"bias_ih_l{layer}"]
            recurrent, bias = weights[f"weight_hh_l{layer}"], weights[f"bias_hh_l{layer}"]
            b = recurrent @ h + bias
            if network["cell"] == "lstm":
                i, f, g, o = (a + b).reshape(4, size)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            elif network["cell"] == "gru":
                r, z = sigmoid((a + b)[: 2 * size]).reshape(2, size)
                rest = recurrent[2 * size :] @ (r * h) + bias[2 * size :]
                n = np.tanh(a[2 * size :] + (r * b[2 * size :] if network["reset_after"] else rest))
                h = (1 - z) * n + z * h
            else:
                h = {"tanh": np.tanh, "relu": lambda v: np.maximum(v, 0)}[network["nonlinearity"]](a + b)
            x = h
            new.append((h, c))
        scores = output @ x + weights["bias_ho"]
        logs.append(scores - np.log(np.exp(scores).sum()))
        state, before = new, symbol
    return np.array(logs)


CASES = {
    "lstm": ("lstm", {"num_layers": 2}),
    "tied": ("lstm", {"embedding_size": 8, "tie_weights": True}),
    "gru": ("gru", {}),
    "gru, reset before": ("gru", {"reset_after": False}),
    "rnn": ("rnn", {"nonlinearity": "relu"}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_the_probabilities_are_those_of_the_rounded_network(text_run, tmp_path, name):
    model, options = CASES[name]
    run = text_run(model, **(RECURRENT | options))
    chainrule.load(run.path).export("web", tmp_path / "page.html")
    network = network_in((tmp_path / "page.html").read_text(encoding="utf-8"))
    own = run.model()
    _, approximation = rounded(own)
    x = torch.from_numpy(run.vocabulary.encode(TEXT + "a"))[None]
    found = conditionals(network, TEXT)
    np.testing.assert_allclose(found, approximation(x).logits.log_softmax(-1)[0], atol=2e-6)
    # 8 bits for weights of about 1: each score of 8 units changes by some hundredths.
    assert 0 < np.abs(found - own(x).logits.log_softmax(-1)[0].numpy()).max() < 0.1


@torch.no_grad()
def test_a_line_end_begins_anew_where_lines_are_texts(text_run):
    run = text_run("gru", CharVocabulary("abceg ", eos=True), **RECURRENT)
    tensors, approximation = rounded(run.model())
    network = {"tensors": tensors, "characters": run.vocabulary.characters, "cell": "gru", "reset_after": True}
    network |= {"hidden_size": 8, "num_layers": 1, "eos": run.vocabulary.eos}
    lines = [approximation(torch.from_numpy(run.vocabulary.encode(text))[None]) for text in ("abba cab\n", "beg\n")]
    wanted = torch.cat([line.logits.log_softmax(-1)[0] for line in lines])
    np.testing.assert_allclose(conditionals(network, "abba cab\nbeg"), wanted, atol=2e-6)


def test_no_weight_changes_by_more_than_half_a_step():
    model = shaken(RecurrentLM(7, "lstm", embedding_size=4, hidden_size=5))
    torch.nn.init.zeros_(model.weight_ho.data[2])
    tensors, approximation = rounded(model)
    for (name, before), after in zip(model.named_parameters(), approximation.parameters(), strict=True):
        step = before.abs().amax(-1, keepdim=True) / 127 if before.dim() == 2 else torch.zeros(1)
        assert ((before - after).abs() <= step / 2 + 1e-7).all()
        record = tensors[name.removeprefix("recurrent.").removesuffix(".weight")]
        np.testing.assert_array_equal(weights_of(record), after.detach())


def test_the_cost_of_rounding_is_a_divergence():
    """With p = (3/4, 1/4) and q = (1/2, 1/2) at every place: 3/4 ln 3/2 + 1/4 ln 1/2."""
    model, other = (RecurrentLM(2, "rnn", embedding_size=2, hidden_size=2) for _ in range(2))
    for network, bias in ((model, [log(3), 0.0]), (other, [0.0, 0.0])):
        torch.nn.init.zeros_(network.weight_ho.data)
        network.bias_ho.data[:] = torch.tensor(bias)
    assert rounding_cost(model, other) == pytest.approx(0.75 * log(1.5) + 0.25 * log(0.5), abs=1e-6)


def test_the_page_needs_no_other_file_and_holds_hostile_characters(text_run, tmp_path, command):
    run = text_run("lstm", CharVocabulary("</script>&\u2028"), **RECURRENT)
    export = ["export", str(run.path), "--to", "web", "--out", str(tmp_path / "new" / "page.html")]
    done = subprocess.run([sys.executable, "-m", "chainrule", *export], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "page.html" in done.stdout
    assert "rounding costs" in done.stdout
    page = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.search(r"https?://|src=|@import|fetch\(", page)
    assert network_in(page)["characters"] == "".join(sorted(set("</script>&\u2028")))
    status, _, error = command(*export)
    assert status == 2
    assert "already exists" in error


@pytest.mark.parametrize(
    ("model", "vocabulary", "options", "reason"),
    [
        ("transformer", None, SMALL, "this is a transformer: train with --model lstm"),
        ("lstm", ByteVocabulary(), RECURRENT, "it reads bytes, and the page reads characters (--level char)"),
        ("lstm", None, RECURRENT | {"num_members": 2}, "averages a network with others or with counts of n-grams:"),
        ("lstm", None, RECURRENT | {"ngram_order": 3}, "it embeds n-grams: train with --plain"),
    ],
)  # fmt: skip
def test_runs_without_a_page_are_refused_by_name(text_run, tmp_path, command, model, vocabulary, options, reason):
    run = text_run(model, vocabulary, **options)
    status, _, error = command("export", run.path, "--to", "web", "--out", tmp_path / "page.html")
    assert status == 2
    assert f"{run.path}: this run has no web page: " in error
    assert reason in error
    assert not (tmp_path / "page.html").exists()


def test_the_page_of_the_manual_is_that_of_this_code():
    page = LIVING.read_text(encoding="utf-8")
    assert len(page.encode()) <= 400_000
    network = network_in(page)
    assert page_of(network) == page, "run benchmarks/living_model.py --page-only"
    text = "The method returns a new dictionary"
    logs = conditionals(network, text)
    numbers = [network["characters"].index(character) + 1 for character in text]
    assert -logs[range(len(text)), numbers].mean() / log(2) < 2.5  # bits a character
    planted = text.replace("dictionary", "dictionqry")
    numbers = [network["characters"].index(character) + 1 for character in planted]
    assert np.argmin(conditionals(network, planted)[range(len(text)), numbers]) == planted.index("q")


@pytest.mark.slow
def test_a_browser_computes_the_probabilities_of_the_run(chromium, tmp_path):
    """The one page of a run with lines, typed text and clicks; at both widths, without a message in the console."""
    run = chainrule.load(Path(chainrule.__file__).parents[1] / "chainrule_app" / "demo" / "cities")
    run.export("web", tmp_path / "page.html")
    text = "Lisbon\nSan Francisco\nž"
    vocabulary = run.task.vocabulary
    _, approximation = rounded(run.model)
    with torch.no_grad():
        wanted, own = (
            torch.cat([
                network(torch.from_numpy(vocabulary.encode(line))[None]).logits.log_softmax(-1)[0]
                for line in (*text.splitlines(keepends=True)[:2], "ža")
            ])
            for network in (approximation, run.model)
        )  # fmt: skip
    for width, still in ((390, "reduce"), (1280, "no-preference")):
        context = chromium.new_context(viewport={"width": width, "height": 800}, reduced_motion=still)
        page, complaints = context.new_page(), []
        page.on("pageerror", lambda error, complaints=complaints: complaints.append(str(error)))
        page.on("console", lambda message, complaints=complaints: complaints.append(message.text))
        page.on("request", lambda asked, complaints=complaints: complaints.append(asked.url))
        page.goto((tmp_path / "page.html").as_uri())
        found = np.array(page.evaluate("text => network.conditionals(text)", text))
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        assert (own.exp().double() * (own - torch.from_numpy(found))).sum(-1).mean() < 0.01  # nats, of rounding
        page.fill("#text", text)
        page.wait_for_function("costs.length === 22")
        numbers = vocabulary.encode(text)
        total = -sum(wanted[place, number].item() for place, number in enumerate(numbers)) / log(2)
        assert page.inner_text("#sum").startswith(f"22 characters, {total:.1f} bits")
        page.fill("#text", "Lisbo")
        page.locator("#likeliest button").first.click()
        best = vocabulary.decode([int(wanted[5].argmax())])
        assert page.input_value("#text") == f"Lisbo{best}"
        assert page.locator("#likeliest li").count() == 10
        page.focus("#write")
        page.keyboard.press("Enter")
        page.wait_for_function("input.value.length > 60")
        if still != "reduce":
            assert page.inner_text("#write") == "Stop"
        page.keyboard.press("Escape")
        assert page.inner_text("#write") == "Write on"
        page.wait_for_function("costs.length === [...input.value].length")
        assert page.evaluate("[...mirror.children].map(span => span.textContent).join('') === input.value")
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room
        assert [line for line in complaints if not line.startswith(("file:", "data:"))] == []
        context.close()

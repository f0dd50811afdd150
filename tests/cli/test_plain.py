"""`--plain` trains the architecture that `--model` names, and the lines about a run name every part of a recipe."""

import pytest
import small_data

import chainrule
from chainrule.models import Forecaster, RecurrentLM, SequenceClassifier, SequenceTagger
from chainrule.testing import _contract
from chainrule_app.tasks import TASKS, open_run, task_class
from chainrule_app.tasks.config import Duration, RunConfig

SAME = ("--steps", 1, "--threads", 1, "--precision", "float32")
PARTS = {  # of the default recipe, the class of the plain model, and the flags that --plain stands for
    "text": ("lstm", ["counts", "embeddings"], RecurrentLM, "--num-members 1 --ngram-order 1 --kneser-ney-order 0"),
    "forecast": (
        "lstm",
        ["linear autoregression", "exponential smoothing", "random walk"],
        Forecaster,
        "--num-members 1 --no-linear",
    ),
    "tag": ("tagger", ["log-linear templates"], SequenceTagger, "--template-passes 0"),
    "classify": (
        "classifier",
        ["linear 2-gram classifier", "TF-IDF regression", "subword embeddings", "naive Bayes start"],
        SequenceClassifier,
        "--ngram-order 1 --no-tfidf --no-ngrams --no-naive-bayes",
    ),
}


@pytest.mark.parametrize("task", PARTS)
def test_plain_leaves_out_every_part_of_the_default_recipe(command, tmp_path, task):
    model, parts, kind, flags = PARTS[task]
    data, *said = [*small_data.WRITERS[task](tmp_path), "--hidden-size", 8]
    trained = {}
    for name, flag in (("recipe", []), ("plain", ["--plain"]), ("flags", flags.split())):
        trained[name] = command("train", data, *said, *SAME, *flag, "--out", tmp_path / name)
        assert trained[name].status == 0, trained[name].err
    recipe, plain = (open_run(tmp_path / name) for name in ("recipe", "plain"))
    assert all(part in recipe.recipe for part in parts)
    assert f"\n{recipe.recipe} with " in trained["recipe"].err
    assert plain.recipe == plain.architecture
    assert plain.recipe.lower().startswith(model)
    assert f"\n{plain.recipe} with " in trained["plain"].err
    assert type(plain.model()) is kind
    options = dict(zip((flag[2:].replace("-", "_") for flag in said[::2]), said[1::2], strict=True))
    python = chainrule.fit(data, plain=True, steps=1, threads=1, precision="float32", **options)
    first, *others = (
        (path / "model.safetensors").read_bytes() for path in (plain.path, tmp_path / "flags", python.path)
    )
    assert all(other == first for other in others)
    assert repr(chainrule.load(plain.path)).startswith(f"<Run {task}: {plain.recipe}, held out")
    assert f"model        {recipe.recipe} (" in command("info", recipe.path).out
    if task != "tag":  # a tagger gives no likelihood to rank
        assert recipe.recipe in command("compare", recipe.path).out


def test_several_networks_and_counts_are_named_and_told_apart(command, ok, tmp_path, monkeypatch):
    monkeypatch.setattr(_contract, "CHECKS", _contract.CHECKS[:1])  # to see how a report begins
    data = small_data.WRITERS["text"](tmp_path)[0]
    out = tmp_path / "run"
    sizes = ("--num-members", 2, "--hidden-size", 8, "--kneser-ney-order", 3, "--validation-fraction", 0.2)
    ok("train", data, *sizes, *SAME, "--out", out)
    run = chainrule.load(out)
    recipe = open_run(out).recipe
    assert recipe.startswith("2 × LSTM 8 + ")
    assert recipe.endswith("-gram counts + 3-gram embeddings")
    assert recipe in repr(run)
    assert command("check", out).out.startswith(f"{recipe}, all parts together\n")
    told = f"(network 1 of 2 in {recipe})"
    assert told in command("inspect", out, "--rows", 2, "--steps", 8).out
    assert told in (out / "report.html").read_text(encoding="utf-8")
    assert len(run.model.network.members) == 2


def test_an_option_that_asks_for_a_part_is_refused(command, refused, tmp_path):
    data = small_data.WRITERS["text"](tmp_path)[0]
    assert "--num-members: --plain leaves this part of the model out" in refused(
        "train", data, "--plain", "--num-members", 2, "--out", tmp_path / "run"
    )
    with pytest.raises(ValueError, match="kneser_ney_order: plain leaves"):
        chainrule.fit(data, plain=True, kneser_ney_order=5, steps=1)
    assert not (tmp_path / "run").exists()


def test_a_run_of_a_recipe_does_not_become_plain(ok, refused, tmp_path):
    data = small_data.WRITERS["text"](tmp_path)[0]
    out = tmp_path / "run"
    ok("train", data, "--hidden-size", 8, *SAME, "--out", out)
    said = refused("train", "--resume", "--plain", "--steps", 2, "--out", out)
    assert "--kneser-ney-order was 12 and is 0" in said


@pytest.mark.parametrize("name", TASKS)
def test_every_option_that_plain_sets_exists_and_leaves_no_part(name):
    task = task_class(name)
    for model, kind in task.MODELS.items():
        sources = dict.fromkeys(task.SOURCES, "x")
        asked = RunConfig(sources, task.Data(), model, kind.options(), Duration(steps=1), task.Training())
        plain, given = task.plain(asked, frozenset())
        assert len(given) == len(task.PLAIN)
        assert not task("run", plain).added_parts()

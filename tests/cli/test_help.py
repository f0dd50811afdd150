"""Help that reads well on narrow terminals, and advice for words that are not ours."""

from typing import get_args

import pytest
from cyclopts import App

from chainrule_app.cli.errors import OPTION_SYNONYMS, VERB_SYNONYMS
from chainrule_app.cli.main import described_verbs, verb_of, verbs_of
from chainrule_app.cli.train import TaskName, train_verb
from chainrule_app.printing import counted
from chainrule_app.tasks import TASKS, task_class

VERBS = dict(described_verbs())
FORMS = [[name] for name in VERBS] + [["train", "--task", name] for name in TASKS]


@pytest.fixture(scope="module")
def made():
    """Help that was shown already."""
    return {}


@pytest.fixture
def helped(ok, made, monkeypatch):
    """The help of a form on a terminal of so many columns."""

    def text(form, columns=100):
        key = (*form, columns)
        if key not in made:
            monkeypatch.setenv("COLUMNS", str(columns))
            outcome = ok(*form, "--help")
            made[key] = outcome.out
        return made[key]

    return text


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("columns", [80, pytest.param(100, marks=pytest.mark.slow)])
def test_texts_fold_at_blanks_alone(helped, form, columns):
    """Continuation lines of a docstring kept their indents and their line ends."""
    shown = helped(form, columns)
    assert max(map(len, shown.splitlines())) <= columns
    assert "[ARGS" not in shown
    for panel in shown.split("╭")[1:]:
        begins = [len(line) - len(line[1:].lstrip()) for line in panel.splitlines() if line.startswith("│")]
        assert len({place for place in begins if place > 6}) <= 1, panel  # names begin before, texts at one column


@pytest.mark.parametrize("task", TASKS)
def test_every_argument_of_every_verb_has_a_line_of_help(task):
    found = task_class(task)
    verbs = [verb_of(found, name) for name in verbs_of(found)] + [train_verb(found, model) for model in found.MODELS]
    for verb in verbs:
        app = App()
        app.default(verb.function)
        arguments = app.assemble_argument_collection(parse_docstring=True)
        assert not [argument.name for argument in arguments if argument.parse and not _help(argument)]


def _help(argument):
    """The flags of a dataclass have theirs."""
    return argument.parameter.help or argument.children


def test_the_help_of_training_names_tasks_and_data(helped):
    shown = " ".join(helped(["train"]).replace("│", " ").split())
    assert "Usage: chainrule train [OPTIONS] DATA..." in shown
    assert f"[choices: {', '.join(TASKS)}]" in shown
    assert get_args(TaskName) == tuple(TASKS)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["train", "--hlep"], "--help"),
        (["train", "--lr", "1"], "--learning-rate"),
        (["train", "--lr=1"], "--learning-rate"),
        (["train", "--optimizer", "adamw"], "--optimiser"),
        (["train", "--batchsize", "2"], "--batch-size"),
        (["train", "--epoch", "2"], "--epochs"),
        (["train", "--hiden-size", "2"], "--hidden-size"),
        (["sample", "RUN", "--num_samples", "2"], "--number"),
        (["generate", "RUN"], "sample"),
        (["eval", "RUN"], "evaluate"),
        (["evalute", "RUN"], "evaluate"),
        (["test", "RUN"], "evaluate"),
        (["fit", "FILE"], "train"),
        (["trian", "FILE"], "train"),
        (["learn"], "train"),
        (["perplexity", "RUN"], "score"),
        (["infer", "RUN"], "predict, tag, classify, translate, caption or forecast"),
        (["impute", "RUN"], "fill"),
        (["help"], "--help"),
    ],
)
def test_words_of_other_programs_and_slips_get_what_was_meant(refused, arguments, meant):
    assert f" Did you mean {meant}?" in refused(*arguments)


@pytest.mark.parametrize("arguments", [["xyzzy"], ["train", "--xyzzy"], ["train", "-q"]])
def test_what_resembles_nothing_gets_no_suggestion(refused, arguments):
    assert "Did you mean" not in refused(*arguments)


def test_every_synonym_leads_to_a_verb_or_an_option(helped):
    known = {*VERBS, "--help", "--version"}
    assert all(set(ours) <= known and word not in known for word, ours in VERB_SYNONYMS.items())
    options = "".join(map(helped, FORMS))
    assert not [ours for words in OPTION_SYNONYMS.values() for ours in words if f"--{ours}" not in options]


def test_a_run_in_the_place_of_data_gets_the_command_that_continues_it(refused, runs):
    run = runs / "stream"
    for asked in (["--resume", run], [run], [run, "--steps", 9], ["--resume", run, "--steps", 9]):
        assert f"chainrule train --resume --out {run}" in refused("train", *asked)


def test_resume_without_out_says_what_is_missing(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "requires --out RUN" in refused("train", "--resume")
    assert "requires --out RUN" in refused("train", "--resume", "text.txt")


@pytest.mark.parametrize(("number", "words"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1000, "1,000 rows")])
def test_one_thing_is_no_plural(number, words):
    assert counted(number, "row") == words

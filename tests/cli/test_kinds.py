import pytest

from chainrule.cli.kinds import HELP_OF, kind_asked_for, verbs_of
from chainrule.runs.kinds import RUNS, run_class


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ([], "text"),
        (["log.txt"], "text"),
        (["rows.csv"], "table"),
        (["rows.csv", "--level", "char"], "text"),
        (["rows.csv", "--reading=lines"], "text"),
        (["--steps", "5", "rows.csv"], "table"),
        (["--steps=5", "rows.csv"], "table"),
        (["--overwrite", "rows.csv", "--out", "log"], "table"),
        (["log.txt", "--validation", "rows.csv"], "text"),
        (["log.txt", "--task", "table"], "table"),
        (["rows.csv", "--task=text"], "text"),
    ],
)
def test_the_data_or_the_task_tell_what_is_trained(arguments, kind):
    assert kind_asked_for("train", arguments) == kind


def test_a_task_that_is_none_is_refused(refused):
    assert "--task: expected one of text, table" in refused("train", "log.txt", "--task", "poetry")


def test_the_run_tells_which_options_a_verb_has(command, runs):
    assert "--prompt" in command("sample", "--help").out
    assert "--prompt" in command("sample", runs / "stream", "--help").out
    assert kind_asked_for("sample", [str(runs / "stream"), "-n", "3"]) == "text"
    assert kind_asked_for("train", ["--resume", "--out", str(runs / "stream")]) == "text"
    assert "--types" in command("train", "rows.csv", "--help").out
    assert "--chunk-length" not in command("train", "--task", "table", "--help").out


@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_has_a_class_that_names_it_and_verbs(kind):
    assert kind == run_class(kind).KIND
    assert {"train", "info"} <= verbs_of(kind).keys()


@pytest.mark.parametrize("verb", HELP_OF)
def test_help_of_a_verb_comes_from_a_kind_that_has_it(verb):
    assert verb in verbs_of(HELP_OF[verb])

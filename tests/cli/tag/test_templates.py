"""Log-linear templates beside the network of a tagger."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tagged_words import SMALL

from chainrule.layers import TemplateScores
from chainrule_app.tasks.tag import task as tag_task
from chainrule_app.tasks.tag.run import TagRun


def test_templates_are_fitted_once_and_kept_with_the_data(ok, files, run, tmp_path, monkeypatch):
    task = TagRun.open(run)
    assert task.config.training.template_passes == 3.0
    table = load_file(run / "data" / "templates.safetensors")["table"]
    model = task.model()
    assert model.templates is not None
    assert torch.equal(model.templates.table, table)
    valid = task.corpus().valid.batch(np.arange(12))
    given = model.templates(valid.context["characters"], valid.lengths).argmax(2)
    real = torch.arange(given.shape[1]) < valid.lengths.unsqueeze(1)
    assert (given == valid.x)[real].double().mean() > 0.9
    with monkeypatch.context() as patch:  # a second model of the run reads them
        patch.setattr(TemplateScores, "fit", None)
        shutil.copytree(run, tmp_path / "copy")
        (tmp_path / "copy" / "model.safetensors").unlink()
        again = TagRun.open(tmp_path / "copy").new_model(0).templates
        assert torch.equal(again.table, table)
    ok("train", files / "train.conllu", "--out", tmp_path / "none", "--steps", 1, "--template-passes", 0, *SMALL)
    assert not (tmp_path / "none" / "data" / "templates.safetensors").exists()
    assert TagRun.open(tmp_path / "none").model().templates is None


def test_data_that_are_prepared_again_have_their_templates_before_any_model_is_made(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "data")
    TagRun.open(tmp_path / "copy").prepare()
    tables = [load_file(folder / "data" / "templates.safetensors")["table"] for folder in (run, tmp_path / "copy")]
    assert torch.equal(*tables)


def test_tags_of_spans_get_no_templates_unless_asked_for(ok, names_run, files, tmp_path):
    assert TagRun.open(names_run).config.training.template_passes == 0
    assert TagRun.open(names_run).model().templates is None
    asked = ("--steps", 1, "--template-passes", 1, *SMALL)
    ok("train", files / "names.conll", "--out", tmp_path / "run", *asked)
    assert TagRun.open(tmp_path / "run").model().templates is not None


def test_a_short_budget_fits_templates_in_less_time(planned, files, tmp_path, monkeypatch):
    clock = iter((0.0, 1.0))
    monkeypatch.setattr(tag_task, "monotonic", lambda: next(clock))  # a second for what is timed, a whole pass
    outcome = planned(files / "train.conllu", *SMALL, "--budget", "2s", "--out", tmp_path / "run")
    assert TagRun.open(tmp_path / "run").config.training.template_passes == 0.2  # of a tenth of the budget
    assert "template passes 0.2\n" in outcome.err
    assert " --template-passes 0.2 " in outcome.err
    assert TagRun.open(tmp_path / "run").new_model(0).templates.table.abs().max() > 0


def test_few_steps_fit_templates_in_no_more_passes(planned, files, tmp_path):
    for given, passes in ((("--epochs", 0.5), 0.5), (("--epochs", 7), 3.0)):
        planned(files / "train.conllu", *given, "--overwrite", "--out", tmp_path / "run", *SMALL)
        assert TagRun.open(tmp_path / "run").config.training.template_passes == passes


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(b"no"), lambda path: path.write_bytes(path.read_bytes()[:-9])]
)
def test_damaged_templates_are_refused_in_a_line(refused, run, tmp_path, damage):
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").unlink()
    (tmp_path / "copy" / "checkpoint.safetensors").unlink()
    damage(tmp_path / "copy" / "data" / "templates.safetensors")
    assert "templates.safetensors" in refused("train", "--resume", "--out", tmp_path / "copy")

"""Callbacks: figures of a run while it lasts, to a program's own object, TensorBoard, MLflow and W&B; samples kept."""

import io
import json
import sys

import pytest
from training_toy import ToyModel, ToyStream, held_out, options

from chainrule.training import Callback, Evaluation, Interrupted, Preview, read_samples, train
from chainrule.training._report import Bar, Display, Lines, make_display
from chainrule_app.tracking import check_tracker, make_tracker


class Recorder(Callback):
    def __init__(self, stop_at=None):
        self.events, self.stop_at = [], stop_at

    def begin(self, directory, step):
        self.events.append(("begin", directory, step))

    def figures(self, step, figures):
        self.events.append(("figures", step, dict(figures)))
        if step == self.stop_at:
            raise KeyboardInterrupt

    def text(self, step, name, text):
        self.events.append(("text", step, name, text))

    def end(self, ending):
        self.events.append(("end", ending))


def trained(path, *, callbacks=(), resume=False, **named):
    model = ToyModel()
    chosen = options(**named.pop("options", {}))
    train(
        model, ToyStream(), held_out, chosen, path, callbacks=callbacks, resume=resume, progress=False,
        on_validation=lambda model, step, seconds: f"drawn at {step}", **named,
    )  # fmt: skip
    return model


def test_a_callback_receives_all_figures_and_changes_no_bit(tmp_path):
    recorder = Recorder()
    watched, alone = trained(tmp_path / "a", callbacks=[recorder]), trained(tmp_path / "b", samples=False)
    assert recorder.events[0] == ("begin", tmp_path / "a", 0)
    assert recorder.events[-1] == ("end", "finished")
    figures = [event for event in recorder.events if event[0] == "figures"]
    losses = [step for _, step, named in figures if "training/nats_per_element" in named]
    validations = {step: named for _, step, named in figures if "validation/nats_per_element" in named}
    assert losses == list(range(1, 17))
    assert list(validations) == [4, 8, 12, 16]
    assert ("text", 8, "sample", "drawn at 8") in recorder.events
    for name, weight in watched.state_dict().items():
        assert weight.equal(alone.state_dict()[name])
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    assert not (tmp_path / "b/samples.jsonl").exists()


def test_an_interrupted_run_says_so_and_its_samples_go_on(tmp_path):
    recorder = Recorder(stop_at=10)
    with pytest.raises(Interrupted):
        trained(tmp_path, callbacks=[recorder])
    assert recorder.events[-1] == ("end", "interrupted")
    again = Recorder()
    trained(tmp_path, callbacks=[again], resume=True)
    assert again.events[0][2] < 10
    assert [sample["step"] for sample in read_samples(tmp_path / "samples.jsonl")] == [4, 8, 12, 16]


def test_an_exception_of_a_callback_ends_the_run_which_can_go_on(tmp_path):
    class Broken(Recorder):
        def figures(self, step, figures):
            if step == 6:
                raise RuntimeError("mine")

    broken = Broken()
    with pytest.raises(RuntimeError, match="mine"):
        trained(tmp_path / "a", callbacks=[broken])
    assert broken.events[-1] == ("end", "failed")
    trained(tmp_path / "a", resume=True)
    trained(tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_of_many_samples_few_are_kept_and_pictures_as_pictures(tmp_path):
    def picture(model, step, seconds):
        return Preview("\x1b[0m blocks", b"\x89PNG")

    model, chosen = ToyModel(), options(steps=100, validate_every=1)
    recorder = Recorder()
    train(model, ToyStream(), held_out, chosen, tmp_path, on_validation=picture, callbacks=[recorder], progress=False)
    samples = read_samples(tmp_path / "samples.jsonl")
    assert samples[0] == {"step": 1, "text": "", "png": "iVBORw=="}
    assert 20 < len(samples) < 60
    assert samples[-1]["step"] > 95
    assert not [event for event in recorder.events if event[0] == "text" and event[2] == "sample"]


def test_tensorboard_events_hold_the_same_figures(tmp_path):
    accumulation = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trained(tmp_path, callbacks=[make_tracker("tensorboard")])
    events = accumulation.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("training/gradient_norm")] == list(range(1, 17))
    assert [event.step for event in events.Scalars("validation/bits_per_element")] == [4, 8, 12, 16]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_has_the_figures_of_a_run_and_of_its_continuation(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs mlflow-skinny: pip install mlflow-skinny")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    trained(tmp_path / "run", callbacks=[make_tracker("mlflow")], options={"steps": 8})
    trained(tmp_path / "run", callbacks=[make_tracker("mlflow")], resume=True)
    client = MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("chainrule").experiment_id])
    assert run.info.status == "FINISHED"
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "training/gradient_norm")]
    assert sorted(steps) == list(range(1, 17))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning")
def test_wandb_writes_a_run_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs wandb: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    trained(tmp_path / "run", callbacks=[make_tracker("wandb")])
    wandb.teardown()  # its process writes the rest
    (written,) = (tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb")
    assert b"validation/nats_per_element" in written.read_bytes()
    assert json.loads((tmp_path / "run/tracking.json").read_text())["wandb"] in written.name


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow-skinny")])
def test_a_missing_tracker_says_how_to_install_it(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"not installed: pip install {package}"):
        check_tracker(name)


RESULT = Evaluation(nats=100.0, elements=50)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(display: Display) -> None:
    display.step(3, 0.25, 1.5, 12345.6, 61)
    display.validation(3, RESULT, best=True, sample="[red]one\x1b[31m\ntwo")
    display.note("a note")
    display.close()


@pytest.mark.parametrize("display", [lambda: Lines(every=0.0), Bar])
def test_figures_and_samples_are_shown(display: type[Display], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    show(display())
    text = screen.getvalue()
    figures = ("25%", "1.500 nats 2.164 bits/element", "12,346 elements/s", "1:01 left", "2.0000 nats", "best so far")
    assert all(part in text for part in figures)
    assert "    [red]one\\x1b[31m" in text  # shown as it is, and no command to the terminal
    assert "    two" in text


def test_a_terminal_gets_a_bar_a_file_gets_lines_and_silence_is_silent(monkeypatch, capsys):
    assert isinstance(make_display(enabled=True), Lines)
    show(make_display(enabled=False))
    assert capsys.readouterr() == ("", "")
    assert type(make_display(enabled=False)) is Display
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = make_display(enabled=True)
    bar.close()
    assert isinstance(bar, Bar)


def test_plain_lines_of_steps_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    display = Lines(every=3600.0)
    for step in range(100):
        display.step(step, 0.5, 1.0, 1.0, 1.0)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_notebook_shows_a_curve_that_grows(tmp_path):
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    code = (
        "import chainrule\n"
        "run = chainrule.fit(text='to be or not to be ' * 80, steps=40, hidden_size=8, kneser_ney_order=0, "
        "validate_every=10)"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = [output["data"]["text/html"] for output in notebook.cells[0].outputs if "data" in output]
    assert shown.count("<circle cx") == 4 + 2  # four validations, two in the legend
    assert '<polyline points="' in shown
    assert "step 40  held out" in shown

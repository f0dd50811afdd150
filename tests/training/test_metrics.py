from pathlib import Path

from training_toy import ToyModel, ToyStream, held_out, options

from chainrule.training import Evaluation, train
from chainrule.training._duration import Position
from chainrule.training._metrics import Metrics, read_metrics
from chainrule.training._validation import Findings


def write(metrics: Metrics, steps: range) -> None:
    for step in steps:
        metrics.step(step, 10 * step, Evaluation(5.0, 10), 1.0, 0.1)
        if step % 2 == 0:
            metrics.validation(step, Evaluation(5.0, 10), best=False)
    metrics.close("finished")


def test_lines_beyond_the_position_are_dropped_on_resume(tmp_path: Path) -> None:
    write(Metrics(tmp_path, Position()), range(1, 5))
    whole = (tmp_path / "metrics.jsonl").read_text()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "step", "st')  # a killed process's last line
    write(Metrics(tmp_path, Position(step=2, validated=2)), range(3, 5))
    assert (tmp_path / "metrics.jsonl").read_text() == whole


def test_a_validation_that_the_checkpoint_does_not_know_is_dropped(tmp_path: Path) -> None:
    write(Metrics(tmp_path, Position()), range(1, 5))
    Metrics(tmp_path, Position(step=4, validated=2)).close("finished")
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [("validation" in line) for line in lines] == [False, False, True, False, False]


def test_a_new_run_begins_with_empty_files(tmp_path: Path) -> None:
    write(Metrics(tmp_path, Position()), range(1, 5))
    (tmp_path / "timings.jsonl").write_text("{}\n")
    Metrics(tmp_path, Position()).close("finished")
    assert (tmp_path / "metrics.jsonl").read_text() == (tmp_path / "timings.jsonl").read_text() == ""


def test_findings_are_recorded_at_each_validation_and_warn_from_the_second_on(tmp_path: Path) -> None:
    def observe(model: ToyModel) -> Findings:
        assert not model.training
        return Findings({"size": model.output.weight.square().mean().item()}, "shown", "it collapsed")

    train(ToyModel(), ToyStream(), held_out, options(steps=8), tmp_path, observe=observe, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path, observe=observe, progress=False, resume=True)
    records = [record for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "validation"]
    assert [record["step"] for record in records] == [4, 8, 12, 16]
    assert len({record["size"] for record in records}) == 4
    assert [record.get("warning") for record in records] == [None, *["it collapsed"] * 3]

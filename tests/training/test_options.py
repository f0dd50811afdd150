import pytest

from chainrule.training import TrainingOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0), ("steps", 1.5), ("epochs", 0.0), ("epochs", float("inf")), ("budget", -1.0), ("batch_size", 0),
        ("chunk_length", -1), ("line_length", 0), ("learning_rate", 0.0), ("learning_rate", float("nan")),
        ("weight_decay", -0.1), ("warmup", 1.0), ("clip_norm", 0.0), ("validate_every", 0), ("patience", 0),
        ("watch_every", 0), ("precision", "float16"), ("seed", -1),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected .*got"):
        TrainingOptions(**{name: value})


def test_a_run_has_one_length() -> None:
    with pytest.raises(ValueError, match="got steps and budget"):
        TrainingOptions(steps=1, budget=1.0)


def test_length_patience_device_and_logging_may_change_on_resume() -> None:
    earlier = {**vars(TrainingOptions(steps=5)), "patience": 3, "device": "cuda", "watch_every": 7}
    TrainingOptions(budget=9.0).check_unchanged(earlier)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 1), ("chunk_length", 1), ("line_length", 1), ("learning_rate", 1.0), ("weight_decay", 1.0),
        ("warmup", 0.5), ("clip_norm", None), ("validate_every", 3), ("precision", "float32"), ("seed", 3),
    ],
)  # fmt: skip
def test_what_makes_another_run_may_not_change_on_resume(name: str, value: object) -> None:
    old = getattr(TrainingOptions(), name)
    with pytest.raises(ValueError, match=f"{name} was {old} and is {value}"):
        TrainingOptions(**{name: value}).check_unchanged(vars(TrainingOptions()))

"""Each alarm is raised by what it is for, by nothing less, and once."""

import math

import pytest
from torch import nn

from chainrule.layers import GRU, LSTM, RNN
from chainrule.training._duration import Position
from chainrule.training._gradient_monitor import GradientAlarms, Profile

STEADY = Profile(1.0, (1.0,) * 20)


def fading(at_16: float, steps: int = 20) -> Profile:
    return Profile(1.0, tuple(at_16 ** (distance / 16) for distance in range(steps)))


def growing(to: float, then: float = 1.0) -> Profile:
    return Profile(1.0, (1.0, to, *[then] * 18))


def alarms(position: Position | None = None, clip_norm: float | None = 1.0, cell: nn.Module | None = None):
    return GradientAlarms(position or Position(), clip_norm, nn.Sequential(cell or LSTM(2, 3)))


def raised(watcher: GradientAlarms, looks: list[list[Profile]]) -> list[tuple[int, str]]:
    return [(number, warning.about) for number, look in enumerate(looks, 1) for warning in watcher.look(look)]


def test_three_looks_in_a_row_without_a_gradient_warn_once() -> None:
    faded, there = [fading(9e-7)], [fading(2e-6)]
    assert raised(alarms(), [faded, faded, there, faded, faded, faded, faded, there, faded, faded, faded]) == [
        (6, "vanishing")
    ]


def test_one_layer_that_carries_the_gradient_is_enough() -> None:
    assert raised(alarms(), [[fading(1e-9), fading(1e-3)]] * 9) == []
    assert raised(alarms(), [[fading(1e-9), fading(1e-8)]] * 9) == [(3, "vanishing")]


def test_rows_that_do_not_go_back_so_far_say_nothing() -> None:
    short, faded = [fading(1e-9, steps=16)], [fading(1e-9)]
    assert raised(alarms(), [short] * 9) == []
    assert raised(alarms(), [faded, short, faded, short, faded]) == [(5, "vanishing")]


@pytest.mark.parametrize("to", [101.0, math.inf, math.nan])
def test_three_looks_in_a_row_at_a_growing_gradient_warn_once(to: float) -> None:
    assert raised(alarms(), [[STEADY, growing(to)]] * 9) == [(3, "exploding")]
    assert raised(alarms(), [[growing(to)], [growing(to)], [growing(99.0)]] * 3) == []


def over(watcher: GradientAlarms, steps: range, norm: float) -> list[int]:
    return [step for step in steps if watcher.step(step, norm) is not None]


def test_a_norm_far_over_the_clip_norm_at_most_steps_of_a_window_warns_once() -> None:
    assert over(alarms(), range(1, 1000), 101) == [51]
    assert over(alarms(clip_norm=2.0), range(1, 1000), 101) == []
    assert over(alarms(clip_norm=None), range(1, 1000), 1e9) == []


def test_each_window_of_steps_counts_anew() -> None:
    watcher = alarms()
    assert over(watcher, range(51, 101), 999.0) == []  # half of the first window
    assert over(watcher, range(101, 201), 999.0) == [151]


def test_an_explosion_is_told_once_however_it_shows() -> None:
    watcher = alarms()
    assert over(watcher, range(1, 101), 999.0) == [51]
    assert raised(watcher, [[growing(1e9)]] * 9) == []
    watcher = alarms()
    assert raised(watcher, [[growing(1e9)]] * 9) == [(3, "exploding")]
    assert over(watcher, range(1, 1000), 999.0) == []


def test_what_was_counted_goes_on_from_a_position_that_was_saved() -> None:
    position = Position()
    both = [fading(1e-9), growing(1e9, then=0.0)]
    assert raised(alarms(position), [both] * 2) == []
    again = Position.from_json(position.to_json())
    assert raised(alarms(again), [both] * 3) == [(1, "vanishing"), (1, "exploding")]
    later = Position.from_json(again.to_json())
    assert raised(alarms(later), [both] * 9) == []
    assert over(alarms(later), range(1, 1000), 999.0) == []


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        (RNN(2, 3), "--model lstm or gru"),
        (nn.RNN(2, 3), "--model lstm or gru"),
        (LSTM(2, 3), "forget gates want a bias of 1"),
        (GRU(2, 3), "update gates want a bias of 1"),
        (nn.Linear(2, 3), "gated units"),
    ],
)
def test_the_remedy_fits_the_cell(cell: nn.Module, remedy: str) -> None:
    watcher = alarms(cell=cell)
    (warning,) = [warning for _ in range(3) for warning in watcher.look([fading(1e-9)])]
    assert remedy in warning.text
    assert "--learning-rate" in warning.text


def test_the_remedy_for_an_explosion_names_what_to_turn() -> None:
    watcher = alarms(cell=RNN(2, 3))
    (warning,) = [warning for _ in range(3) for warning in watcher.look([growing(1e9)])]
    for part in ("--learning-rate", "--clip-norm", "--chunk-length", "--model lstm"):
        assert part in warning.text
    watcher = alarms(cell=nn.Conv2d(2, 3, 3))
    (warning,) = [warning for _ in range(3) for warning in watcher.look([growing(1e9)])]
    assert "--chunk-length" not in warning.text


@pytest.mark.parametrize("damage", [{"elapsed": 1e300}, {"step": -1}, {"best": [float("nan"), 3]}, {"step": True}])
def test_a_damaged_position_is_refused(damage):
    with pytest.raises(ValueError, match=r"checkpoint: .*the file is damaged"):
        Position.from_json(Position().to_json() | damage)

import copy

import pytest
import torch
from training_toy import ToyModel, ToyStream

from chainrule.data.batches import Batch
from chainrule.models import RecurrentLM
from chainrule.training import candidates as timing
from chainrule.training.candidates import (
    Candidates,
    average_batch,
    choose_computation,
    make_candidates,
    steps_per_second,
    typical_batches,
)
from chainrule.training.computation import Computation, computing, cpu_quota

CPU = torch.device("cpu")
BATCH = ToyStream().at(0)


@pytest.fixture
def language_model() -> RecurrentLM:
    return RecurrentLM(7, embedding_size=3, hidden_size=4, dropout=0.2)


def seconds(monkeypatch: pytest.MonkeyPatch, of, *, real_steps: bool = False) -> None:
    """Let each step take, in place of its real time, what `of` says of its computation; whether it is taken at all."""
    real, clock = timing._take_step, [0.0]

    def take_step(model, optimiser, batch, way, device):
        if real_steps:
            real(model, optimiser, batch, way, device)
        clock[0] += of(way)
        return of(way)

    monkeypatch.setattr(timing, "_take_step", take_step)
    monkeypatch.setattr(timing, "monotonic", lambda: clock[0])


def test_timing_leaves_weights_modes_and_randomness_as_they_are(language_model, monkeypatch):
    seconds(monkeypatch, lambda way: 1.0, real_steps=True)
    language_model.eval()
    before, threads = copy.deepcopy(language_model.state_dict()), torch.get_num_threads()
    state = torch.random.get_rng_state()
    ways = [Computation(1), Computation(2, "bfloat16", "bptt")]
    rates = steps_per_second(language_model, BATCH, ways, 6.0, CPU)
    assert rates == [1.0, 1.0]
    assert all(torch.equal(before[name], weight) for name, weight in language_model.state_dict().items())
    assert all(weight.grad is None for weight in language_model.parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    assert (language_model.training, torch.get_num_threads()) == (False, threads)
    assert language_model.recurrent.backend == "auto"


def test_the_fastest_way_is_taken_stage_by_stage(language_model, monkeypatch):
    cost = {1: 1.0, 2: 2.0, "float32": 1.0, "bfloat16": 5.0, "auto": 1.0, "vendor": 0.8, "bptt": 1.2}
    seconds(monkeypatch, lambda way: cost[way.threads] * cost[way.precision] * cost[way.backend])
    some = Candidates((2, 1), ("bfloat16", "float32"), ("auto", "vendor", "bptt"))
    choice = choose_computation(language_model, [BATCH], some, 600.0, CPU)
    assert choice.computation == Computation(1, "float32", "vendor")
    assert choice.elements_per_second[str(choice.computation)] == pytest.approx(BATCH.x.numel() / 0.8)
    assert str(choice).startswith("float32, vendor kernel, 1 thread: 25 elements/s here (")


def test_a_kernel_that_is_fast_in_one_precision_is_found(language_model, monkeypatch):
    cost = {("bfloat16", "vendor"): 0.7, ("float32", "auto"): 0.9}
    seconds(monkeypatch, lambda way: cost.get((way.precision, way.backend), 1.0))
    some = Candidates((1,), ("bfloat16", "float32"), ("auto", "vendor", "bptt"))
    assert choose_computation(language_model, [BATCH], some, 60.0, CPU).computation == Computation(
        1, "bfloat16", "vendor"
    )


def test_a_difference_within_noise_keeps_the_first(language_model, monkeypatch):
    seconds(monkeypatch, lambda way: 1.0 if way.threads == 2 else 0.98)
    choice = choose_computation(language_model, [BATCH], Candidates((2, 1), ("float32",), ("auto",)), 10.0, CPU)
    assert choice.computation.threads == 2


def test_the_line_says_why_a_slightly_faster_way_is_not_taken(language_model, monkeypatch):
    seconds(monkeypatch, lambda way: 1.0 if way.threads == 2 else 0.98)
    choice = choose_computation(language_model, [BATCH], Candidates((2, 1), ("float32",), ("auto",)), 10.0, CPU)
    others = "(float32, 1 thread: 20; a lead as small as that is within the noise)"
    assert str(choice) == f"float32, 2 threads: 20 elements/s here {others}"


def test_a_stage_on_a_busier_machine_does_not_let_an_earlier_loser_look_faster(language_model, monkeypatch):
    busy = {"stages": 0}

    def cost(way):
        if way.backend == "bptt":
            busy["stages"] = 1
        return {"auto": 1.0, "vendor": 1.1, "bptt": 1.2}[way.backend] * (1 + busy["stages"])

    seconds(monkeypatch, cost)
    some = Candidates((1,), ("float32",), ("auto", "vendor", "bptt"))
    choice = choose_computation(language_model, [BATCH], some, 600.0, CPU)
    assert choice.computation == Computation(1)
    rates = choice.elements_per_second
    assert max(rates, key=rates.__getitem__) == str(choice.computation)
    assert "within the noise" not in str(choice)


def test_without_time_nothing_is_decided(language_model, monkeypatch):
    seconds(monkeypatch, lambda way: 1.0)
    choice = choose_computation(language_model, [BATCH], Candidates((2, 1), ("float32",), ("auto",)), 0.0, CPU)
    assert choice.computation == Computation(2)
    assert choice.elements_per_second == {}


@pytest.mark.parametrize(("ratio", "taken"), [(1.2, 2), (1.3, 1)])
def test_two_steps_decide_on_a_large_difference_only(language_model, monkeypatch, ratio, taken):
    seconds(monkeypatch, lambda way: ratio if way.threads == 2 else 1.0)
    some = Candidates((2, 1), ("float32",), ("auto",))
    two_rounds = 2 * (1 + ratio)
    assert choose_computation(language_model, [BATCH], some, two_rounds, CPU).computation.threads == taken
    assert choose_computation(language_model, [BATCH], some, 2 * two_rounds, CPU).computation.threads == 1


def test_a_quarter_of_each_row_is_timed_where_there_is_no_time_for_all(language_model, monkeypatch):
    sizes = []

    def take_step(model, optimiser, batch, way, device):
        sizes.append(tuple(batch.x.shape))
        clock[0] += batch.x.numel() / way.threads
        return batch.x.numel() / way.threads

    clock = [0.0]
    monkeypatch.setattr(timing, "_take_step", take_step)
    monkeypatch.setattr(timing, "monotonic", lambda: clock[0])
    batch, some = Batch(torch.zeros(2, 64, dtype=torch.long)), Candidates((1, 2), ("float32",), ("auto",))
    assert choose_computation(language_model, [batch], some, 10_000.0, CPU).computation.threads == 2
    assert set(sizes) == {(2, 64)}
    sizes.clear()
    assert choose_computation(language_model, [batch], some, 400.0, CPU).computation.threads == 2
    assert (sizes[0], set(sizes[1:])) == ((2, 64), {(2, 16)})
    sizes.clear()
    rows = Batch(torch.zeros(2, 64, dtype=torch.long), lengths=torch.tensor([64, 3]))
    choose_computation(language_model, [rows], some, 400.0, CPU)
    assert set(sizes) == {(2, 64)}


class Rows:
    """Batches of which the k-th reads rows as long as the k-th of `lengths`, by turns."""

    def __init__(self, *lengths: int):
        self._lengths = lengths
        self.steps_per_epoch = len(lengths)

    def at(self, step: int) -> Batch:
        words = torch.zeros(2, self._lengths[step % len(self._lengths)], dtype=torch.long)
        return Batch(words, torch.full((2,), words.shape[1]), context={"words": words})


def test_batches_of_one_size_are_timed_by_the_first():
    typical = typical_batches(Rows(5, 5))
    assert [batch.x.shape[1] for batch in typical] == [5]


def test_a_way_that_is_fast_on_the_first_rows_alone_is_not_taken(language_model, monkeypatch):
    """The vendor's kernel costs the square of the length: rows of the first batch are short."""
    typical = typical_batches(Rows(2, *range(1, 16)))
    assert [batch.x.shape[1] for batch in typical] == [14, 7, 11, 3]

    def take_step(model, optimiser, batch, way, device):
        length = batch.x.shape[1]
        taken = length**2 / 5 if way.backend == "vendor" else float(length)
        clock[0] += taken
        return taken

    clock = [0.0]
    monkeypatch.setattr(timing, "_take_step", take_step)
    monkeypatch.setattr(timing, "monotonic", lambda: clock[0])
    ways = Candidates((1,), ("float32",), ("auto", "vendor"))
    assert choose_computation(language_model, typical[-1:], ways, 1e4, CPU).computation.backend == "vendor"
    choice = choose_computation(language_model, typical, ways, 1e4, CPU)
    assert choice.computation.backend == "auto"
    # The first round is not counted: two elements for each place of the others.
    assert choice.elements_per_second["float32, 1 thread"] == pytest.approx(2.0)
    assert choice.elements_per_second["float32, vendor kernel, 1 thread"] == pytest.approx(2 * 5 * 21 / (49 + 121 + 9))


@pytest.mark.parametrize(("ratio", "taken"), [(1.08, 2), (1.12, 1)])
def test_one_step_of_each_size_decides_on_a_clear_difference_only(language_model, monkeypatch, ratio, taken):
    seconds(monkeypatch, lambda way: ratio if way.threads == 2 else 1.0)
    ways = Candidates((2, 1), ("float32",), ("auto",))
    typical = typical_batches(Rows(*range(1, 17)))
    assert choose_computation(language_model, typical, ways, 1e3, CPU).computation.threads == taken
    assert choose_computation(language_model, typical[:1], ways, 1e3, CPU).computation.threads == 1


def test_the_average_batch_is_of_average_size():
    lengths = [1, 2, *range(3, 31, 2)]  # 14 on average
    assert average_batch(Rows(*lengths)).x.shape == (2, 15)
    assert average_batch(Rows(3, 3)).x.shape == (2, 3)


def test_only_what_the_user_left_open_is_a_candidate(language_model):
    asked = make_candidates(language_model, CPU, threads=3, precision="float32", backend="bptt")
    assert asked.stages == []
    assert asked.default == Computation(3, "float32", "bptt")
    assert make_candidates(language_model, CPU).backend == ("auto", "vendor", "bptt")
    assert make_candidates(language_model, CPU, backend="rule").backend == ("auto",)  # not timed
    assert make_candidates(ToyModel(), CPU).backend == ("auto",)  # no layer of ours


def test_the_order_of_the_ways_turns_so_that_every_second_step_meets_each(language_model, monkeypatch):
    met = []
    seconds(monkeypatch, lambda way: met.append(way.threads) or 1.0)
    steps_per_second(language_model, BATCH, [Computation(1), Computation(2)], 8.0, CPU, "muon")
    assert met[::2][:8] == [1, 2, 2, 1, 1, 2, 2, 1]  # each step asks twice: for the clock, and for its seconds


def test_an_emulated_precision_is_not_asked_of_the_vendor(language_model, monkeypatch):
    monkeypatch.setattr(timing, "multiplies_bfloat16", lambda: False)
    assert make_candidates(language_model, CPU, precision="bfloat16").backend == ("auto", "bptt")
    assert make_candidates(language_model, CPU, precision="float32").backend == ("auto", "vendor", "bptt")


def test_both_backends_compute_the_same(language_model):
    language_model.eval()
    nats = []
    for backend in ("vendor", "bptt"):
        with computing(language_model, Computation(1, "float32", backend)):
            nats.append(language_model.log_prob(BATCH.x))
    torch.testing.assert_close(nats[0], nats[1])


@pytest.mark.parametrize(("content", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)])
def test_the_quota_of_a_container_is_read(tmp_path, content, cores):
    (tmp_path / "cpu.max").write_text(content)
    assert cpu_quota(tmp_path / "cpu.max") == cores
    for name, value in (("quota", "-1"), ("period", "100000")):
        (tmp_path / name).write_text(value)
    assert cpu_quota(tmp_path / "none", tmp_path / "quota", tmp_path / "period") is None

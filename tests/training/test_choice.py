"""How training steps are computed is a function of processor, model and batch alone."""

import pytest
import torch
from training_toy import ToyModel, ToyStream

from chainrule.data import Batch
from chainrule.devices import cpu_quota
from chainrule.layers import GRU
from chainrule.models import MADE, GatedPixelCNN, RecurrentLM
from chainrule.training import Computation
from chainrule.training import _computation as choice
from chainrule.training._computation import Work, choose

CPU = torch.device("cpu")
BATCH = ToyStream().at(0)


def recurrent(layers="LSTM", units=256, *, rows=32, full=True, vendor=True, multiplies=None):
    if multiplies is None:
        multiplies = {"LSTM": 4, "GRU": 3, "RNN": 1}[layers] * units**2 * (rows if full else rows / 2)
    return Work(layers, units, rows, full, vendor, multiplies)


@pytest.fixture
def language_model() -> RecurrentLM:
    return RecurrentLM(7, embedding_size=3, hidden_size=4, dropout=0.2)


@pytest.mark.parametrize(
    ("work", "native", "emulated"),
    [
        (recurrent(), ("bfloat16", "vendor"), ("float32", "auto")),
        (recurrent(units=64), ("bfloat16", "vendor"), ("float32", "auto")),
        (recurrent(rows=2), ("float32", "auto"), ("float32", "auto")),
        (recurrent(units=512), ("bfloat16", "auto"), ("float32", "auto")),
        (recurrent(full=False), ("bfloat16", "auto"), ("float32", "auto")),
        (recurrent(units=128, full=False), ("float32", "auto"), ("float32", "auto")),
        (recurrent("GRU"), ("bfloat16", "auto"), ("float32", "auto")),
        (recurrent("GRU", 128), ("float32", "auto"), ("float32", "auto")),
        (recurrent("GRU", rows=8), ("float32", "auto"), ("float32", "auto")),
        (recurrent("GRU", vendor=False), ("bfloat16", "auto"), ("float32", "auto")),
        (recurrent("RNN"), ("bfloat16", "auto"), ("float32", "auto")),
        (recurrent("RNN", full=False), ("float32", "auto"), ("float32", "auto")),
        (Work("other", 0, 32, True, False, 1e8), ("bfloat16", "auto"), ("float32", "auto")),
        (Work("other", 0, 32, True, False, 1e6), ("float32", "auto"), ("float32", "auto")),
    ],
    ids=str,
)
def test_precision_and_kernel_follow_from_instructions_layer_and_rows(work, native, emulated):
    for bfloat16, expected in ((True, native), (False, emulated)):
        found = choose(bfloat16, 1, work)
        assert (found.precision, found.backend) == expected


@pytest.mark.parametrize(("multiplies", "expected"), [(0.0, 1), (2e6, 1), (7e6, 2), (1e9, 4)])
def test_more_threads_where_there_is_more_to_do(multiplies, expected):
    assert choose(False, 4, recurrent(multiplies=multiplies)).threads == expected
    assert choose(False, 1, recurrent(multiplies=multiplies)).threads == 1


@pytest.mark.parametrize("bfloat16", [True, False])
def test_what_the_user_gives_replaces_the_rule(bfloat16):
    given = choose(bfloat16, 4, recurrent(), threads=3, precision="float32", backend="bptt")
    assert given == Computation(3, "float32", "bptt")
    assert choose(bfloat16, 4, recurrent("GRU"), precision="bfloat16", backend="vendor") == Computation(
        2, "bfloat16", "vendor"
    )


def test_precision_suits_the_kernel_that_the_user_gives():
    assert choose(True, 1, recurrent(units=64), backend="bptt").precision == "float32"
    assert choose(True, 1, recurrent(units=64), precision="float32").backend == "auto"


def test_an_emulated_precision_is_not_asked_of_the_vendor():
    assert choose(False, 1, recurrent(), precision="bfloat16").backend == "auto"


def test_unequal_rows_are_found_in_batch_and_context(language_model):
    lengths = torch.tensor([4, 2])
    assert Work.of(language_model, Batch(torch.zeros(2, 4, dtype=torch.long))) == Work(
        "LSTM", 4, 2, True, True, 2 * 64.0
    )
    assert not Work.of(language_model, Batch(torch.zeros(2, 4, dtype=torch.long), lengths)).full
    context = {"inputs": torch.zeros(2, 4), "lengths": lengths}
    assert not Work.of(language_model, Batch(torch.zeros(2), context=context, whole=True)).full


def test_a_layer_that_no_kernel_computes_is_left_to_itself():
    model = torch.nn.ModuleList([GRU(3, 4, reset_after=False)])
    assert not Work.of(model, BATCH).vendor


def test_a_dense_network_is_counted_by_rows_and_a_convolution_by_elements():
    images = Batch(torch.zeros(2, 1, 4, 4, dtype=torch.long), whole=True)
    shape = (1, 4, 4)
    few, many = GatedPixelCNN(shape, 2, 4, 1), GatedPixelCNN(shape, 2, 8, 1)
    assert 0 < Work.of(few, images).multiplies < Work.of(many, images).multiplies
    made = MADE(16, [10])
    assert Work.of(made, Batch(torch.zeros(2, 16), whole=True)).multiplies == 2 * 160


def test_a_choice_is_made_the_same_way_twice_and_says_why(language_model, monkeypatch):
    monkeypatch.setattr(choice, "multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(choice, "instruction_set", lambda: "AVX2")
    monkeypatch.setattr(choice, "usable_threads", lambda: 8)
    first, second = (Computation.choose(language_model, BATCH, CPU) for _ in range(2))
    assert first == second
    way, reason = first
    assert way == Computation(1, "float32")
    assert reason == ("float32, 1 thread: AVX2 processor with 8 threads, LSTM of 4 units, 4 full rows")
    assert Computation.choose(ToyModel(), BATCH, CPU)[0] == Computation(1)


def test_both_backends_compute_the_same(language_model):
    language_model.eval()
    nats = []
    for backend in ("vendor", "bptt"):
        with Computation(1, "float32", backend).applied_to(language_model):
            nats.append(language_model.log_prob(BATCH.x))
    torch.testing.assert_close(nats[0], nats[1])


@pytest.mark.parametrize(("content", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)])
def test_the_quota_of_a_container_is_read(tmp_path, content, cores):
    (tmp_path / "cpu.max").write_text(content)
    assert cpu_quota(tmp_path / "cpu.max") == cores
    for name, value in (("quota", "-1"), ("period", "100000")):
        (tmp_path / name).write_text(value)
    assert cpu_quota(tmp_path / "none", tmp_path / "quota", tmp_path / "period") is None

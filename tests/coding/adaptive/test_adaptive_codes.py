"""Every text is read back from its code, and the code is as long as the model's own probabilities say."""

import bz2
import hashlib
import lzma
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainrule.coding import adaptive
from chainrule.coding.adaptive import _models as models
from chainrule.coding.adaptive import _probabilities as counters
from chainrule.coding.adaptive import _probabilities as logistic
from chainrule.coding.adaptive import _probabilities as refinement
from chainrule_app.readers.text import builtin_text

TEXT = builtin_text()[1000:13000].encode()
NOISE = np.random.default_rng(0).integers(0, 256, 3000, np.uint8).tobytes()


def restored(data):
    return adaptive.decompress(adaptive.compress(data), len(data))


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=80), st.lists(st.sampled_from([b"a", b"bc", b"\0\0", b"\xff"])).map(b"".join)))
def test_any_bytes_are_read_back(data):
    assert restored(data) == data


@pytest.mark.parametrize(
    "data",
    [TEXT, NOISE, bytes(range(256)), b"", b"\0", b"\xff", b"ab" * 4000, "çà\n".encode("utf-16") * 50],
    ids=["text", "noise", "all bytes", "empty", "zero", "255", "repeated", "UTF-16"],
)
def test_texts_of_all_kinds_are_read_back(data):
    assert restored(data) == data


def test_long_runs_cost_next_to_nothing():
    data = b"x" + bytes(10**7) + TEXT[:100] + b"\n" * 5000 + bytes(4096)
    code = adaptive.compress(data)
    assert len(code) < 250
    assert adaptive.decompress(code, len(data)) == data


def test_a_code_is_at_most_a_byte_longer_than_its_text():
    for length in range(40):
        assert len(adaptive.compress(NOISE[:length])) <= length + 1
    assert len(adaptive.compress(NOISE)) == len(NOISE) + 1


@pytest.mark.parametrize("data", [TEXT, b"ab" * 4000, b"\0\1" * 100 + TEXT[:2000]], ids=["text", "repeated", "both"])
def test_a_code_is_as_long_as_the_probabilities_say(data):
    bits = adaptive.code_length(data)
    assert bits / 8 < len(adaptive.compress(data)) <= bits / 8 * 1.0005 + 4  # two bytes of header, rounding of the end


def test_a_text_costs_less_than_under_fixed_schemes():
    code = adaptive.compress(TEXT)
    assert len(code) < 0.85 * len(bz2.compress(TEXT))
    assert len(code) < 0.85 * len(lzma.compress(TEXT, preset=9))


def test_codes_are_the_same_on_every_machine():
    data = b"".join(b"%d plus %d is %d\n" % (a, b, a + b) for a in range(30) for b in range(20))
    digest = hashlib.sha256(adaptive.compress(data)).hexdigest()
    # It changes with the model, which can then no longer read older codes: the container's version must go up.
    assert digest == "22f91c4d1dac34ae04aa6c95501ceea11ed0ab62410c558426e02877618edb0e"


def test_a_flipped_bit_changes_what_is_read():
    code = bytearray(adaptive.compress(TEXT))
    code[len(code) // 2] ^= 1
    assert adaptive.decompress(bytes(code), len(TEXT)) != TEXT


@pytest.mark.parametrize(
    ("code", "length"),
    [
        (b"", 1),
        (b"\0ab", 3),
        (b"\0ab", 1),
        (b"\1", 3),
        (b"\2\0ab", 3),
        (b"\1\1\5\xff", 9),
        (b"\1\1\5\x63abc", 9),
        (b"a", 0),
    ],
)
def test_what_is_no_code_of_such_a_text_is_refused(code, length):
    with pytest.raises(ValueError, match=rf"data: expected the code of {length} bytes"):
        adaptive.decompress(code, length)


def test_numba_is_named_where_it_is_missing(monkeypatch):
    compiled = ("chainrule.coding.adaptive.", "chainrule.kernels._machine_code")
    for name in [name for name in sys.modules if name.startswith(compiled)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(adaptive, "_bitstream", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ValueError, match=r"pip install numba"):
        adaptive.compress(TEXT)


def test_numba_is_loaded_only_when_it_is_used():
    program = "import sys, chainrule.coding.adaptive; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_progress_is_told_up_to_the_end():
    told = []
    data = TEXT + TEXT[::-1]
    code = adaptive.compress(data, told.append)
    assert told == sorted(told)
    assert len(told) == 2
    assert told[-1] == len(data)
    assert adaptive.decompress(code, len(data), told.append) == data
    assert told[2:] == told[:2]


def test_a_length_far_beyond_the_code_is_refused_before_it_is_read():
    code = adaptive.compress(NOISE[:3000] + bytes(range(97, 123)) * 40)
    with pytest.raises(ValueError, match="expected the code of 30000000 bytes"):
        adaptive.decompress(code, 30_000_000)


def test_a_number_of_a_code_has_at_most_63_bits():
    with pytest.raises(ValueError, match="data: expected the code of 10 bytes"):
        adaptive.decompress(b"\1" + b"\xff" * 8 + b"\x7f" + bytes(100), 10)
    assert adaptive._read_number(b"\xff" * 8 + b"\x7f", 0) == (2**63 - 1, 9)
    with pytest.raises(IndexError):
        adaptive._read_number(b"\xff" * 9 + b"\x01", 0)


RNG = np.random.default_rng(1)


def test_squash_is_the_logistic_function_and_stretch_its_inverse():
    x = np.arange(-logistic.LIMIT, logistic.LIMIT + 1)
    exact = 65536 / (1 + np.exp(-x / 256))
    assert np.abs(logistic.SQUASH - exact.clip(1, 65535)).max() <= 0.5
    p = np.arange(4096) * 16 + 8
    assert np.abs(logistic.SQUASH[logistic.STRETCH + logistic.LIMIT] - p).max() < 65536 / 4 / 256  # a step of x


def after(bits):
    state = 0
    for bit in bits:
        state = int(models.NEXT[state, bit])
    return state


def test_a_history_keeps_the_order_of_the_first_bits():
    states = {after([n >> k & 1 for k in range(length)]) for length in range(5) for n in range(2**length)}
    assert len(states) == 31


def test_a_contradiction_makes_a_history_forget():
    sure, shaken = after([0] * 30), after([0] * 30 + [1])
    assert models.SEEN[sure] == 30
    assert models.SEEN[shaken] < 8
    assert models.BEGINNING[sure] < models.BEGINNING[shaken] < 32768


def test_a_counter_is_the_share_of_ones_and_comes_as_near_to_certainty_as_it_can_tell():
    bits = (RNG.random(500) < 0.3).astype(int)
    table = np.zeros(2, np.int32)
    for seen in bits.tolist():
        counters.learn(table, 0, seen, 1020)
    estimate = counters.probability(table[0]) / 65536
    assert estimate == pytest.approx((bits.sum() + 0.25) / (len(bits) + 0.5), abs=1e-3)  # 1/2 a bit of each before
    for _ in range(20_000):
        counters.learn(table, 1, 1, 1020)
    assert counters.probability(table[1]) == 65535


def test_the_mixer_descends_the_gradient_of_the_cost():
    inputs, rows, neurons = 6, 3, 2
    net = models.make_mixer(np.zeros(inputs), rows, neurons, 2, (200, 0, 100, 0, 1))
    net.inputs[:] = RNG.integers(-900, 900, inputs)
    net.weights[:] = RNG.integers(-30000, 30000, (rows, inputs))
    net.last_weights[:] = RNG.integers(10000, 50000, (2, neurons))
    net.rows[:] = [2, 0]
    net.last_row[0] = 1
    weights, last = net.weights / models.ONE, net.last_weights / models.ONE
    x = net.inputs / 256

    models.mix(net)
    hidden = weights[net.rows] @ x
    assert net.outputs / 256 == pytest.approx(hidden, abs=1 / 128)
    assert net.last_output[0] / 256 == pytest.approx(last[1] @ hidden, abs=1 / 64)
    models.update_mixer(net, 1)

    def cost(w, inputs):
        return math.log1p(math.exp(-w @ inputs))  # -ln p of a one

    def gradient(w, inputs):
        steps = 1e-5 * np.eye(len(w))
        return np.array([cost(w + step, inputs) - cost(w - step, inputs) for step in steps]) / 2e-5

    moved = net.weights / models.ONE - weights
    for row in net.rows:
        assert moved[row] == pytest.approx(-200 / 2**14 * gradient(weights[row], x), abs=2e-4)
    assert not moved[1].any()
    moved = net.last_weights / models.ONE - last
    assert moved[1] == pytest.approx(-100 / 2**14 * gradient(last[1], hidden), abs=2e-4)
    assert not moved[0].any()


def test_a_map_begins_as_the_identity_and_learns_what_comes():
    table = refinement.make_map(2)
    for stretched in (-3000, -700, 0, 63, 2500):
        exact = 65536 / (1 + math.exp(-stretched / 256))
        assert refinement.refine(table, 1, stretched) == pytest.approx(exact, rel=0.05, abs=2)  # by straight lines
    for _ in range(300):
        refinement.update(table, 1, 0, 1)
    assert refinement.refine(table, 1, 0) > 60000
    assert refinement.refine(table, 0, 0) == pytest.approx(32768, abs=2)

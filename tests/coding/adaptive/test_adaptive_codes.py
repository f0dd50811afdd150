"""Every text is read back from its code, and the code is as long as the model's own probabilities say."""

import bz2
import hashlib
import lzma
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainrule.coding import adaptive
from chainrule.data import builtin_text

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

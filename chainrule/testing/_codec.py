"""Check that decoding inverts encoding, and that the code length equals −log₂ p."""

import math
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule.coding import decode, encode
from chainrule.coding._batches import code_rows
from chainrule.coding._range_coder import Numbers, RangeCoder, Rows
from chainrule.heads._head import NotDiscreteError
from chainrule.state import map_state
from chainrule.testing._contract_check import contract_check
from chainrule.testing._isolation import as_called
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import DoesNotApply, Violation, in_type

EXCESS, OVERHEAD = 1.005, 64  # allowed factor over the bytes of -log2 p, and allowed extra bytes
ROUNDING = 0.05  # bits: two orders of summation in float32
DAMAGES = 12


@contract_check(SequenceSubject)
@torch.no_grad()
def check_codec(subject: SequenceSubject) -> str:
    """Check that `chainrule.coding` restores x exactly, in at most 1.005 · −log₂ p bits and 64 bytes, and finds damage.

    The check also compares the bits of the coded choices, within 0.5% and a twentieth of a bit, with −log₂ p of each
    row
    alone: the probabilities of `step` must not depend on the other rows. It decodes data with twelve changed bytes and
    truncated data. It does not apply to continuous elements.
    """
    if find_spec("constriction") is None:
        raise DoesNotApply("the package constriction is not installed")
    with as_called():
        return _checked(subject)


def _checked(subject: SequenceSubject) -> str:
    model = subject.copy(own_type=True)
    x, context = in_type((subject.x, subject.context), subject.own_type)
    try:
        data = encode(model, x, context)
    except NotDiscreteError as error:
        raise DoesNotApply(str(error)) from None
    _require_equal(decode(model, data, context), x, f"{len(x)} rows")
    first = map_state(lambda leaf: leaf[:1], context)
    _require_equal(decode(model, encode(model, x[:1], first), first), x[:1], "a row alone")
    bits = sum(_bits(model, x, context, row) for row in range(len(x)))
    meter = _Meter()
    code_rows(model, meter, len(x), x.shape[1], x, context)
    if not math.isfinite(bits) or abs(meter.bits - bits) > (EXCESS - 1) * bits + ROUNDING:
        raise Violation(f"step gives {len(x)} rows {meter.bits:.4f} bits together, log_prob {bits:.4f} one by one")
    if len(data) > EXCESS * bits / 8 + OVERHEAD:
        raise Violation(f"{len(data)} bytes coded, more than {EXCESS} x {bits / 8:.1f} + {OVERHEAD}")
    _require_detection(subject, model, context, data)
    return f"{len(x)} rows in {len(data)} bytes, {bits / 8:.1f} by -log2 p; {DAMAGES} changed bytes and a cut found"


class _Meter(RangeCoder):
    """Coder that sums the bits of choices and writes nothing."""

    def __init__(self) -> None:
        self.bits = 0.0

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        assert symbols is not None
        coded = np.take_along_axis(probabilities, symbols[:, None], 1).astype(np.float64)
        self.bits -= float(np.log2(np.maximum(coded, 2.0**-24)).sum())
        return symbols


def _bits(model: AutoregressiveModel, x: Tensor, context: Context, row: int) -> float:
    own = map_state(lambda leaf: leaf[row : row + 1], context)
    return float(-model.log_prob(x[row : row + 1], own)) / math.log(2)


def _require_equal(decoded: Tensor, x: Tensor, label: str) -> None:
    if decoded.shape != x.shape or not ((decoded == x) | (decoded.isnan() & x.isnan())).all():
        raise Violation(f"{label}: decoding does not restore x: step does not repeat its results")


def _require_detection(subject: SequenceSubject, model: AutoregressiveModel, context: Context, data: bytes) -> None:
    trials = [data[:-1]]
    for index in subject.integers(len(data), (DAMAGES,)).tolist():
        changed = bytearray(data)
        changed[index] ^= 1 + int(subject.integers(255, ()))
        trials.append(bytes(changed))
    for trial in trials:
        try:
            decode(model, trial, context)
        except ValueError:
            continue
        raise Violation("damaged bytes were decoded without an error")

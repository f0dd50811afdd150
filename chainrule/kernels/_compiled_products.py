"""Products of a few rows with a matrix that is laid out once for many of them, for compiled loops.

A tile of sums, up to six rows and two vectors wide, stays in registers while one column of x and one line of the
matrix after another are read. numba has no vectors, so that this innermost loop is written in LLVM's instructions.
"""

from typing import Any

import torch
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from chainrule.kernels._machine_code import compiled

_TILE = 6  # rows: with two vectors each, twelve of the sixteen registers of AVX2
_DEPTH = 256  # lines of a panel that stay in the first cache while all rows read them
_BYTES = 64 if binding.get_host_cpu_features().get("avx512f") else 32  # of a vector


def panels(weight: Tensor) -> Tensor:
    """Lay out W (K, M) for `add_product`: (P, M, w), w columns of Wᵀ together; K ≥ w.

    The last panel takes the last w columns, those that the one before has as zeros.
    """
    wide = panel_width(weight.dtype)
    missing = -len(weight) % wide
    whole = len(weight) - (wide - missing) % wide
    columns = torch.cat([weight[:whole], weight.new_zeros(missing, weight.shape[1]), weight[whole:]])
    return columns.view(-1, wide, weight.shape[1]).transpose(1, 2).contiguous()


def panel_width(dtype: torch.dtype) -> int:
    """Return the columns of a panel."""
    return 2 * _BYTES // dtype.itemsize


@compiled
def add_product(x: Any, panels: Any, out: Any) -> None:
    """Add x Wᵀ to `out`: x (B, M), the `panels` of W, and out (B, K).

    Each sum is taken in the order of M whatever B is, so that rows may be shared out.
    """
    rows, depth = x.shape
    count, wide = panels.shape[0], panels.shape[2]
    for begin in range(0, depth, _DEPTH):
        deep = min(_DEPTH, depth - begin)
        for panel in range(count):
            column, row = min(panel * wide, out.shape[1] - wide), 0
            for left in range((rows + _TILE - 1) // _TILE, 0, -1):
                tile = (rows - row + left - 1) // left
                _add_tile(tile, deep, x[row:, begin:], panels[panel, begin:], out[row:, column:])
                row += tile


@intrinsic
def _add_tile(typing: Any, rows: Any, depth: Any, x: Any, panel: Any, out: Any) -> Any:
    """out[:rows, :w] += x[:rows, :depth] panel[:depth]; rows from 1 to `_TILE`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, step = context.get_value_type(x.dtype), ir.IntType(64)
        lanes = _BYTES // (x.dtype.bitwidth // 8)
        vector = ir.VectorType(number, lanes)
        count, end = arguments[:2]
        (x_at, x_row), (w_at, _), (y_at, y_row) = (
            (view.data, builder.sdiv(cgutils.unpack_tuple(builder, view.strides)[0], step(kind.dtype.bitwidth // 8)))
            for kind, value in zip(signature.args[2:], arguments[2:], strict=True)
            for view in [context.make_array(kind)(context, builder, value)]
        )

        def vectors(pointer: Any, offset: Any) -> list[Any]:
            return [
                builder.bitcast(builder.gep(pointer, [builder.add(offset, step(part * lanes))]), vector.as_pointer())
                for part in range(2)
            ]

        def load(pointer: Any) -> Any:
            return builder.load(pointer, align=x.dtype.bitwidth // 8)

        after = builder.append_basic_block()
        choice = builder.switch(count, after)
        for tile in range(1, _TILE + 1):
            start = builder.append_basic_block()
            choice.add_case(ir.Constant(count.type, tile), start)
            builder.position_at_end(start)
            sums = [place for row in range(tile) for place in vectors(y_at, builder.mul(y_row, step(row)))]
            lines = [builder.gep(x_at, [builder.mul(x_row, step(row))]) for row in range(tile)]
            first = [load(place) for place in sums]
            body = builder.append_basic_block()
            builder.branch(body)
            builder.position_at_end(body)
            k = builder.phi(step)
            now = [builder.phi(vector) for _ in sums]
            weights = [load(place) for place in vectors(w_at, builder.mul(k, step(2 * lanes)))]
            new = []
            for row, line in enumerate(lines):
                one = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), builder.load(builder.gep(line, [k])), step(0)
                )
                spread = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), lanes), None))
                for part, weight in enumerate(weights):
                    term = builder.fmul(spread, weight, flags=("contract",))
                    new.append(builder.fadd(term, now[2 * row + part], flags=("contract",)))
            following = builder.add(k, step(1))
            for phi, before, then in zip([k, *now], [step(0), *first], [following, *new], strict=True):
                phi.add_incoming(before, start)
                phi.add_incoming(then, body)
            stop = builder.append_basic_block()
            builder.cbranch(builder.icmp_signed("<", following, end), body, stop)
            builder.position_at_end(stop)
            for place, value in zip(sums, new, strict=True):
                builder.store(value, place, align=x.dtype.bitwidth // 8)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(rows, depth, x, panel, out), generate

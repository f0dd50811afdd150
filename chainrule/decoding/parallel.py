"""Exact sampling in fewer passes: elements are guessed, a window of guesses is verified in one pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context, for_rows
from chainrule.decoding.drafter import Drafter
from chainrule.decoding.guessed_rows import GuessedRows
from chainrule.decoding.position_noise import PositionNoise
from chainrule.decoding.verification import verify_by_noise, verify_by_rejection
from chainrule.heads import Categorical, Head, head_of
from chainrule.heads.categorical import check_filters
from chainrule.modes import device_of, in_evaluation
from chainrule.prefix import check_prefix
from chainrule.ranges import check_sizes
from chainrule.state import map_state

WINDOW = 8  # elements of a pass, where a model reads any number of them at once
BLOCK_WINDOW = 1024  # where it reads blocks, such as rows of pixels: a small image is a window


@dataclass(frozen=True)
class ParallelSample:
    """The result of `sample_parallel`.

    Args:
        x: (n, length), or laid out as x is: the sequences, prefix included.
        elements: drawn for each row, up to the end of the longest.
        passes: windows that the model read for them.
        guesses: that were verified, of all rows: of each window those up to the first wrong one.
        accepted: how many of them were right.
    """

    x: Tensor
    elements: int
    passes: int
    guesses: int
    accepted: int

    @property
    def acceptance_rate(self) -> float:
        """The share of right guesses, 0 where there were none."""
        return self.accepted / max(self.guesses, 1)

    @property
    def elements_per_pass(self) -> float:
        """1 is what `model.sample` needs."""
        return self.elements / max(self.passes, 1)


@in_evaluation
@torch.no_grad()
def sample_parallel(
    model: AutoregressiveModel,
    n: int,
    context: Context = None,
    *,
    length: int | None = None,
    prefix: Tensor | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | None = None,
    generator: torch.Generator | None = None,
    draft: AutoregressiveModel | None = None,
    window: int | None = None,
    rejection: bool = False,
) -> ParallelSample:
    r"""Draw sequences in fewer passes than elements, exactly.

    .. math:: x_t = \arg\max_v\, (\log p(v \mid x_{<t}, c) + g_{tv})

    With the Gumbel noise g fixed, x is a function of it, and x_t a function of x_{<t}: whatever solves all T equations
    is the sample. A pass over a window of guesses computes all right-hand sides; the guesses up to the first wrong one
    were right, and so is what the pass puts in its place. The sample is that of `model.sample` with the same generator,
    element for element, but for roundoff, where conditionals are `Categorical`. Others of symbols (Bernoulli, adaptive
    softmax, mixtures of logistics) draw by noise of their own there: here they are drawn from as tables, and the sample
    is another one of the same distribution.

    Guesses are the last pass's own results (fixed-point or Jacobi iteration: Song et al. 2021,
    https://arxiv.org/abs/2002.03629; Wiggers and Hoogeboom 2020, https://arxiv.org/abs/2002.09928), or those of a
    `draft` with the same noise. With `rejection` they are draws of the draft that are accepted by chance
    (`chainrule.decoding.verification.verify_by_rejection`; Leviathan et al. 2023, https://arxiv.org/abs/2211.17192;
    Chen et al. 2023): more of them, but the sample is then another one of the same distribution.

    It gains where a pass over a window costs less than as many steps, and where guesses are right. A model whose
    `unroll` computes step by step (an RNN, mostly) gains little or loses. Rows wait for each other: one row gains most.

    Args:
        model: a model over symbols.
        n: number of sequences.
        context, length, prefix, temperature, top_k, top_p, eos, generator: as in `AutoregressiveModel.sample`.
        draft: a cheaper model over the same symbols, such as `NgramDraft` or a smaller model.
        window: largest number of elements in a pass, rounded up to whole blocks (`model.block_length`); `None` is 8,
            or about 1,024 for a model that reads blocks. With a window of T, every pass reads the whole of x.
        rejection: accept guesses by chance.

    Returns:
        The sequences, and how many passes and guesses they took. An element counts as drawn when it is known, in
        all rows.

    Raises:
        ValueError: as `model.sample`; the model or the draft is not over symbols, or over others; `rejection` without a
            draft; `window` is below 1.

    >>> from chainrule.models import TransformerLM
    >>> model = TransformerLM(5, model_size=8, num_layers=1, num_heads=2).eval()
    >>> drawn = sample_parallel(model, 2, length=12, generator=torch.Generator().manual_seed(0))
    >>> torch.equal(drawn.x, model.sample(2, length=12, generator=torch.Generator().manual_seed(0)))
    True
    """
    check_filters(temperature, top_k, top_p)
    check_sizes(n=n, window=1 if window is None else window)
    if rejection and draft is None:
        raise ValueError("rejection: accepts guesses of a draft by chance: give a draft")
    length, prefix = model.checked_request(n, length, prefix)
    device = device_of(model)
    if context is not None:
        context = map_state(lambda leaf: leaf.to(device), for_rows(context, n))
    start = 0 if prefix is None else prefix.shape[1]
    block = model.block_length
    if window is None:
        window = WINDOW if block == 1 else max(BLOCK_WINDOW // block, 1) * block
    size = -(-window // block) * block

    # `state` and `x_prev` are those before element `position`, a multiple of the block.
    state, x_prev, position = model.initial_state(n, context), None, start - start % block
    first = head_of(model.step(None, state)[0])  # which says what the symbols are
    table = _table(first)
    if prefix is not None and start:
        check_prefix(table, prefix.t().to(device))
    if prefix is not None and start == length:
        return ParallelSample(model.from_sequence(prefix), 0, 0, 0, 0)
    if prefix is not None and position:
        known = prefix[:, :position].to(device)
        state, x_prev = model.unroll(known, state)[1], known[:, -1]
    rows = GuessedRows(first.sample(generator=torch.Generator(device)), prefix, length)
    rows.end(eos)

    def filtered(table: Categorical) -> Categorical:
        return table.filtered(temperature, top_k, top_p)

    drafter = None if draft is None else Drafter(draft, n, context, filtered, table.param_shape[-1])
    noise, read = PositionNoise(table, start, generator), model.window_reader()
    passes = 0
    while (begin := rows.known_in_all) < length:
        end = min(length, position + size)
        draws = noise.between(begin, end)
        drafts = drafter.guess(rows.x, rows.known, begin, draws[:, :-1]) if drafter else []
        chunk = rows.x[:, position:end]
        conditionals, after = read(chunk, state, x_prev)
        (scores,) = _table(head_of(conditionals)).parameters
        tables, guesses = filtered(Categorical(scores[:, begin - position :])), rows.x[:, begin:end]
        if rejection:
            symbols, right = verify_by_rejection(tables, draws, guesses, drafts, generator)
        else:
            symbols, right = verify_by_noise(tables, draws, guesses)
        rows.accept(begin, symbols, right)
        rows.end(eos)
        passes += 1
        kept = (rows.known_in_all - position) // block * block
        if kept and end < length:  # a window that reaches the end need not move
            read_all = position + kept == end
            state = after if read_all else model.rewind(state, after, chunk, x_prev, kept)
            position += kept
            x_prev = rows.x[:, position - 1]
    drawn = int(rows.ends.max()) - start
    return ParallelSample(model.from_sequence(rows.x), drawn, passes, rows.guesses, rows.accepted)


def _table(head: Head) -> Categorical:
    table = head.categorical()
    if table is None:
        raise ValueError("model: expected one over symbols, got one over numbers: use model.sample")
    return table

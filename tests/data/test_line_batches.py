import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import LineBatches, StreamBatches, Tokens
from chainrule.data import _corpus_batches as corpus_batches

EOS = 1


def corpus(lengths: list[int]) -> Tokens:
    """Lines of the given lengths, `<eos>` included; no element but `<eos>` occurs twice."""
    ids, fresh = [], 2
    for length in lengths:
        ids += [*range(fresh, fresh + length - 1), EOS]
        fresh += length - 1
    return Tokens(ids, eos=EOS)


def rows(batch) -> list[tuple[int, ...]]:
    return [tuple(row[:length].tolist()) for row, length in zip(batch.x, batch.lengths, strict=True)]


def lines(tokens: Tokens) -> list[tuple[int, ...]]:
    starts, stops = tokens.line_bounds(torch.arange(tokens.line_count).numpy())
    return [tuple(tokens.slice(a, b).tolist()) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


many = st.lists(st.integers(1, 9), min_size=6, max_size=60)
sizes = st.tuples(many, st.integers(1, 6), st.integers(0, 9))


@pytest.fixture(autouse=True, scope="module")
def _small_pools():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_batches, "_BATCHES_IN_POOL", 3)
        yield


@given(sizes, st.integers(0, 2))
def test_an_epoch_reads_every_line_at_most_once_and_leaves_out_less_than_a_batch(size, epoch):
    lengths, batch_size, seed = size
    tokens = corpus(lengths)
    reader = LineBatches(tokens, batch_size, 9, seed)
    first = epoch * reader.steps_per_epoch
    read = [row for step in range(first, first + reader.steps_per_epoch) for row in rows(reader.at(step))]
    left = sorted(lines(tokens))
    for row in read:
        left.remove(row)  # raises where a line comes twice
    assert len(left) == len(lengths) % batch_size


@given(sizes, st.integers(0, 1000))
def test_a_batch_depends_on_seed_and_step_alone(size, step):
    lengths, batch_size, seed = size
    reader = LineBatches(corpus(lengths), batch_size, 9, seed)
    for other in (0, step + 1, step + 7):
        reader.at(other)
    batch, again = reader.at(step), LineBatches(corpus(lengths), batch_size, 9, seed).at(step)
    assert torch.equal(batch.x, again.x)
    assert torch.equal(batch.lengths, again.lengths)


@given(sizes, st.integers(2, 3), st.integers(0, 50))
def test_processes_share_the_rows_of_the_same_batch(size, world, step):
    lengths, batch_size, seed = size
    tokens, batch_size = corpus(lengths * world), batch_size * world
    whole = LineBatches(tokens, batch_size, 9, seed).at(step)
    for rank in range(world):
        share = LineBatches(tokens, batch_size, 9, seed, shard=(rank, world)).at(step)
        assert torch.equal(share.x, whole.x[rank::world])
        assert torch.equal(share.lengths, whole.lengths[rank::world])


@given(many, st.integers(1, 9))
def test_long_lines_are_cut_and_counted(lengths, max_length):
    tokens = corpus(lengths)
    reader = LineBatches(tokens, 1, max_length)
    read = [row for step in range(reader.steps_per_epoch) for row in rows(reader.at(step))]
    assert sorted(read) == sorted(line[:max_length] for line in lines(tokens))
    assert reader.cut_lines == sum(length > max_length for length in lengths)


def test_rows_are_padded_with_zeros_and_start_anew():
    batch = LineBatches(corpus([2, 5]), 2, 9).at(0)
    short = int(batch.lengths.argmin())
    assert batch.x[short, 2:].tolist() == [0, 0, 0]
    assert batch.fresh
    assert batch.previous is None


def test_lines_that_meet_in_a_pool_differ_between_epochs_and_seeds():
    tokens = corpus([3] * 40)
    pools = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        reader = LineBatches(tokens, 2, 9, seed)
        first = epoch * reader.steps_per_epoch
        pools.append({row for step in range(first, first + 3) for row in rows(reader.at(step))})
    assert pools[0] != pools[1]
    assert pools[0] != pools[2]


def test_lines_of_like_length_stand_side_by_side():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 100, (3000,), generator=generator).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_batches, "_BATCHES_IN_POOL", 32)
        reader = LineBatches(corpus(lengths), 16, 100)
        padded = sum(reader.at(step).x.numel() for step in range(reader.steps_per_epoch))
    assert padded < 1.1 * sum(lengths)  # in random order it would be about 1.8 times


def test_the_order_of_lines_is_shuffled_and_differs_between_epochs_and_seeds():
    tokens = corpus([3] * 40)
    orders = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        reader = LineBatches(tokens, 2, 9, seed)
        orders.append([rows(reader.at(epoch * reader.steps_per_epoch + step)) for step in range(20)])
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    assert [row for batch in orders[0] for row in batch] != lines(tokens)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 6), st.integers(1, 40))
def test_evaluation_reads_every_line_whole_once_and_in_order(lengths, batch_size, max_elements):
    tokens = corpus(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_batches, "_LINES_AT_ONCE", 7)
        read = list(LineBatches.evaluation(tokens, batch_size, max_elements=max_elements))
    assert [row for batch in read for row in rows(batch)] == lines(tokens)
    assert all(len(batch.x) <= batch_size for batch in read)
    assert all(batch.x.numel() <= max_elements or len(batch.x) == 1 for batch in read)


def test_too_few_lines_are_refused():
    with pytest.raises(ValueError, match=r"at least 3 lines.*got 2.*batch_size"):
        LineBatches(corpus([2, 2]), 3, 9)


def test_a_stream_is_no_corpus_of_lines():
    tokens = Tokens(range(100))
    for read in (lambda: LineBatches(tokens, 1, 9), lambda: LineBatches.evaluation(tokens, 1)):
        with pytest.raises(ValueError, match="reading='lines'"):
            read()
    assert StreamBatches(tokens, 2, 5).steps_per_epoch


def test_a_last_line_without_eos_is_refused():
    with pytest.raises(ValueError, match="last line"):
        Tokens([2, EOS, 3], eos=EOS)

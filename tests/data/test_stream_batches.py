from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.data import StreamBatches, Tokens


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Number of elements, tracks, chunk length, seed."""
    batch_size, chunk_length = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    smallest = batch_size * chunk_length + chunk_length - 1
    return draw(st.integers(smallest, smallest + 200)), batch_size, chunk_length, draw(st.integers(0, 99))


def batches(stream: tuple[int, int, int, int], **options) -> StreamBatches:
    count, batch_size, chunk_length, seed = stream
    return StreamBatches(Tokens(range(count)), batch_size, chunk_length, seed, **options)


@given(streams(), st.integers(0, 3))
def test_an_epoch_reads_every_element_of_its_range_once(stream, epoch):
    reader = batches(stream)
    steps = range(epoch * reader.steps_per_epoch, (epoch + 1) * reader.steps_per_epoch)
    read = torch.cat([reader.at(step).x.flatten() for step in steps]).sort().values
    count = reader.steps_per_epoch * stream[1] * stream[2]
    assert torch.equal(read, torch.arange(count) + reader.offset(epoch))
    # what is left out is less than one step and one chunk
    assert stream[0] - count < stream[1] * stream[2] + stream[2]


@given(streams())
def test_tracks_go_on_from_chunk_to_chunk_and_start_anew_with_the_epoch(stream):
    reader = batches(stream)
    read = [reader.at(step) for step in range(2 * reader.steps_per_epoch)]
    assert [batch.fresh for batch in read] == [step % reader.steps_per_epoch == 0 for step in range(len(read))]
    for before, batch in pairwise(read):
        assert (batch.previous is None) == batch.fresh
        if not batch.fresh:
            assert torch.equal(batch.previous, before.x[:, -1])
            assert torch.equal(batch.x[:, 0], before.x[:, -1] + 1)
    assert all(batch.x.shape == stream[1:3] and batch.lengths is None for batch in read)
    assert all(torch.equal(batch.x.diff(dim=1), torch.ones_like(batch.x[:, 1:])) for batch in read)


@given(streams(), st.integers(0, 1000))
def test_chunks_that_carry_nothing_hold_the_same_elements_and_begin_anew(stream, step):
    batch = batches(stream, carry=False).at(step)
    assert torch.equal(batch.x, batches(stream).at(step).x)
    assert batch.fresh
    assert batch.previous is None
    read = [
        list(StreamBatches.evaluation(Tokens(range(stream[0])), *stream[1:3], carry=carry)) for carry in (True, False)
    ]
    assert all(torch.equal(one.x, other.x) for one, other in zip(*read, strict=True))
    assert all(batch.fresh and batch.previous is None for batch in read[1])


@given(streams(), st.integers(0, 1000))
def test_a_batch_depends_on_seed_and_step_alone(stream, step):
    reader = batches(stream)
    reader.at(step + 1)
    again = batches(stream).at(step)
    assert torch.equal(reader.at(step).x, again.x)
    assert (reader.at(step).previous is None) == (again.previous is None)


@given(streams(), st.integers(2, 4), st.integers(0, 50))
def test_processes_share_the_rows_of_the_same_batch(stream, world, step):
    count, rows, chunk_length, seed = stream
    stream = count * world, max(rows, world), chunk_length, seed
    whole = batches(stream).at(step)
    shares = [batches(stream, shard=(rank, world)).at(step) for rank in range(world)]
    for rank, share in enumerate(shares):
        assert torch.equal(share.x, whole.x[rank::world])
        assert share.fresh == whole.fresh
        assert share.previous is None or torch.equal(share.previous, whole.previous[rank::world])


def test_chunk_boundaries_differ_from_epoch_to_epoch_and_seed_to_seed():
    offsets = [[batches((100, 2, 8, seed)).offset(epoch) for epoch in range(30)] for seed in range(2)]
    assert offsets[0] != offsets[1]
    assert {offset % 8 for offset in offsets[0]} == set(range(8))


@pytest.mark.parametrize("extra", [0, 1])
def test_a_corpus_too_short_for_one_step_is_refused(extra):
    needed = 4 * 8 + 7
    if extra:
        assert batches((needed, 4, 8, 0)).steps_per_epoch == 1
    else:
        with pytest.raises(ValueError, match=rf"at least {needed} symbols.*got {needed - 1}.*chunk_length") as caught:
            batches((needed - 1, 4, 8, 0))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"chunk_length": 0}, "chunk_length"),
        ({"seed": -1}, "seed"),
        ({"shard": (0, 5)}, "batch_size: expected at least 5, one for each process, got 4"),
        ({"shard": (2, 2)}, "shard"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        StreamBatches(Tokens(range(1000)), **{"batch_size": 4, "chunk_length": 8} | arguments)


@settings(max_examples=300)
@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 20))
def test_evaluation_reads_every_element_once_and_in_order(count, batch_size, chunk_length):
    tracks: list[list[int]] = []
    for batch in StreamBatches.evaluation(Tokens(range(count)), batch_size, chunk_length):
        assert batch.x.shape[0] <= batch_size
        if batch.fresh:
            assert batch.previous is None
            current: list[list[int]] = [[] for _ in batch.x]
            tracks += current
        else:
            assert batch.previous.tolist() == [track[-1] for track in current]
        for track, row in zip(current, batch.x.tolist(), strict=True):
            track += row
    assert [element for track in tracks for element in track] == list(range(count))


def test_evaluation_takes_fewer_tracks_rather_than_short_ones():
    with pytest.raises(ValueError, match="at least one element"):
        StreamBatches.evaluation(Tokens([]), 1, 1)
    assert [batch.x.shape for batch in StreamBatches.evaluation(Tokens(range(20)), 16, 10)] == [(2, 10)]
    assert [batch.x.shape for batch in StreamBatches.evaluation(Tokens(range(5)), 16, 10)] == [(1, 5)]

"""Beam search over a batch of sentences beside one sentence at a time: the same output, and the ratio of times.

    python benchmarks/speed_beam_search.py [--sentences 256] [--batch 64] [--beam-size 5] [--rounds 3] [--threads 1]

The model is a translator's decoder of the usual shape: an LSTM that attends to a source of 6 to 20 positions. Its
weights are random (seed 0), which changes no cost; the probability of `<eos>` rises about the length of the source, so
that sentences end at different steps, as translations do. Before anything is timed, both ways must give the same
sequences. The same search with a beam of one (greedy decoding) is timed beside it, and the part of the batched search
that is the model's own steps: what no search can save.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule import AutoregressiveModel
from chainrule.decoding import Decoded, beam_search
from chainrule.heads import Categorical
from chainrule.state import State

EOS, MAX_LENGTH = 0, 30


class AttentiveDecoder(AutoregressiveModel):
    """An LSTM that reads the last word and what it attends to; the context is (B, 1+S, M), lengths in front."""

    def __init__(self, vocab_size: int, hidden_size: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size + 1, hidden_size // 2)
        self.cell = nn.LSTMCell(hidden_size // 2 + hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, vocab_size)
        nn.init.normal_(self.output.weight, std=3 * hidden_size**-0.5)

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        assert context is not None
        lengths, memory = context[:, 0, 0], context[:, 1:]
        start = memory.mean(1).tanh()
        return {"h": start, "c": start, "memory": memory, "left": lengths}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        h, memory = state["h"], state["memory"]
        if x_prev is None:
            x_prev = torch.full((len(h),), self.embedding.num_embeddings - 1)
        weights = (memory @ h.unsqueeze(2)).squeeze(2).softmax(1)
        attended = (weights.unsqueeze(1) @ memory).squeeze(1)
        h, c = self.cell(torch.cat([self.embedding(x_prev), attended], 1), (h, state["c"]))
        scores = self.output(h)
        scores[:, EOS] = 8 - 4 * state["left"]
        return Categorical(scores), {"h": h, "c": c, "memory": memory, "left": state["left"] - 1}

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        conditionals, _ = self.unroll(x, self.initial_state(len(x), context))
        assert isinstance(conditionals, Categorical)
        return conditionals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = AttentiveDecoder(options.vocabulary, options.hidden_size).eval()
    context = torch.randn(options.sentences, 21, options.hidden_size)
    context[:, 0, 0] = torch.randint(6, 21, (options.sentences,))
    context = context[context[:, 0, 0].argsort()]  # sentences of like length together, as a user would have them
    shape = f"V={options.vocabulary}, M={options.hidden_size}"
    rows, claims = [], []
    for beam_size in (options.beam_size, 1):
        batched, alone = (searching(model, context, size, beam_size) for size in (options.batch, 1))
        elements = require_same_output(batched(), alone())
        seconds = interleaved({"batched": batched, "one at a time": alone}, options.rounds, warmup=0)
        ratio = median_ratio(seconds["one at a time"], seconds["batched"])
        rows.append(
            {
                "search": f"beam {beam_size}, {shape}",
                "sentences": options.sentences,
                "batch": options.batch,
                "elements": elements,
                "one at a time s": statistics.median(seconds["one at a time"]),
                "batched s": statistics.median(seconds["batched"]),
                "of which steps s": seconds_in_steps(model, batched),
                "ratio": ratio,
            }
        )
        if beam_size > 1:
            what = f"beam {beam_size}, {shape}: batches of {options.batch} over one sentence at a time"
            claims.append(claim(what, ratio, ">=", 10, "×"))
    publish("speed_beam_search", rows, claims)


def searching(model: AutoregressiveModel, context: Tensor, batch: int, beam_size: int) -> Callable[[], list[Decoded]]:
    def run() -> list[Decoded]:
        results = []
        for rows in context.split(batch):
            results += beam_search(model, rows, beam_size=beam_size, max_length=MAX_LENGTH, eos=EOS, length_penalty=0.6)
        return results

    return run


def seconds_in_steps(model: AutoregressiveModel, search: Callable[[], list[Decoded]]) -> float:
    """What one search spends in the model."""
    plain, total = model.stepper(), 0.0

    def timed(x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        nonlocal total
        start = time.perf_counter()
        result = plain(x_prev, state)
        total += time.perf_counter() - start
        return result

    model.stepper = lambda: timed  # type: ignore[method-assign]  # for the length of this call
    try:
        search()
    finally:
        del model.stepper
    return total


def require_same_output(batched: list[Decoded], alone: list[Decoded]) -> int:
    """How many elements were found, the same both ways."""
    for row, (one, other) in enumerate(zip(batched, alone, strict=True)):
        if not torch.equal(one.sequences[0], other.sequences[0]):
            raise AssertionError(f"row {row}: {one.sequences[0].tolist()} and {other.sequences[0].tolist()}")
        torch.testing.assert_close(one.log_probs, other.log_probs, rtol=1e-4, atol=1e-4)  # float32
    return sum(len(one.sequences[0]) for one in batched)


if __name__ == "__main__":
    main()

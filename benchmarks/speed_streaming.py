"""One stream at batch 1: how many symbols a second, sampling included, on one thread.

    python benchmarks/speed_streaming.py [--rounds 9]

By turns: `model.stream` here in compiled loops, as of a long stream, and in plain steps, as of a short one;
torch.nn.LSTM called one step at a time with an embedding, an output layer and torch.multinomial, which is what a user
writes; and, as the floor, plain matrix-vector products with weights of the same shapes, which read every weight once
and do nothing else.
"""

import argparse
import statistics
from collections import deque
from collections.abc import Callable
from itertools import islice

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import nn

from chainrule import AutoregressiveModel
from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM

VOCABULARY = 100
SIZES = {"1×256": (1, 256, 400), "2×1024": (2, 1024, 40)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, claims = [], []
    for name, (layers, hidden, steps) in SIZES.items():
        model = RecurrentLM(VOCABULARY, "lstm", hidden, hidden, layers).eval()
        seconds = interleaved(
            {
                "ours": ours(model, steps),
                "plain": plain(model, steps),
                "torch": torch_one_step_at_a_time(model, steps),
                "products": products(layers, hidden, steps),
            },
            options.rounds,
        )
        rates = {way: steps / statistics.median(values) for way, values in seconds.items()}
        over_torch = median_ratio(seconds["torch"], seconds["ours"])
        share = median_ratio(seconds["products"], seconds["ours"])
        rows.append(
            {
                "LSTM": name,
                "ours steps/s": rates["ours"],
                "plain steps/s": rates["plain"],
                "torch.nn steps/s": rates["torch"],
                "products steps/s": rates["products"],
                "ours ÷ torch.nn": over_torch,
                "ours ÷ products": share,
                "ours ÷ plain": median_ratio(seconds["plain"], seconds["ours"]),
            }
        )
        if hidden == 1024:
            claims.append(claim(f"LSTM {name}, batch 1: steps/s ÷ torch.nn step by step", over_torch, ">=", 5, "×"))
        claims.append(claim(f"LSTM {name}, batch 1: steps/s ÷ plain matrix-vector products", share, ">=", 0.85, "×"))
    model, steps = default_model(), 200
    seconds = interleaved({"ours": ours(model, steps), "plain": plain(model, steps)}, options.rounds)
    gain = median_ratio(seconds["plain"], seconds["ours"])
    rates = {way: steps / statistics.median(values) for way, values in seconds.items()}
    rows.append(
        {
            "LSTM": "2 of 256, 7-grams",
            "ours steps/s": rates["ours"],
            "plain steps/s": rates["plain"],
            "ours ÷ plain": gain,
        }
    )
    claims.append(claim("two LSTMs and n-gram counts, batch 1: characters a second ÷ plain steps", gain, ">=", 2, "×"))
    publish("speed_streaming", rows, claims)


def default_model() -> CalibratedMixture:
    """The default model of a text: LSTMs with n-gram embeddings, mixed with counts, here of random text."""
    members = [RecurrentLM(65, "lstm", 64, 256, ngram_order=3) for _ in range(2)]
    text = torch.randint(65, (200_000,), generator=torch.Generator().manual_seed(0)) ** 2 // 65
    return CalibratedMixture(Ensemble(members), NgramLM.fit(text, 65, order=7)).eval()


def ours(model: AutoregressiveModel, steps: int) -> Callable[[], None]:
    """Further symbols of one stream, which is long enough for compiled loops."""
    stream = model.stream(1, count=10**9, generator=torch.Generator().manual_seed(0))
    next(stream)
    return lambda: deque(islice(stream, steps), 0)


def plain(model: AutoregressiveModel, steps: int) -> Callable[[], None]:
    """The first symbols of streams."""
    generator = torch.Generator().manual_seed(0)
    return lambda: deque(model.stream(1, count=steps, generator=generator), 0)


def torch_one_step_at_a_time(model: RecurrentLM, steps: int) -> Callable[[], None]:
    """The same weights in torch.nn's modules; their first conditionals are compared before anything is timed."""
    layer = model.recurrent
    lstm = nn.LSTM(layer.input_size, layer.hidden_size, layer.num_layers, batch_first=True)
    lstm.load_state_dict(layer.state_dict())
    embedding, output = model.embedding, nn.Linear(layer.hidden_size, model.vocab_size)
    assert embedding is not None
    output.load_state_dict({"weight": model.weight_ho, "bias": model.bias_ho})
    x = torch.tensor([[model.vocab_size, 3, 5]])
    with torch.no_grad():
        expected = model(torch.tensor([[3, 5, 0]])).logits
        torch.testing.assert_close(output(lstm(embedding(x))[0]).log_softmax(-1), expected, rtol=1e-4, atol=1e-4)

    @torch.no_grad()
    def run() -> None:
        symbol, state = torch.full((1, 1), model.vocab_size), None
        for _ in range(steps):
            h, state = lstm(embedding(symbol), state)
            symbol = torch.multinomial(output(h[:, 0]).softmax(-1), 1)

    return run


def products(layers: int, hidden: int, steps: int) -> Callable[[], None]:
    weights = [torch.randn(4 * hidden, hidden) for _ in range(2 * layers)] + [torch.randn(VOCABULARY, hidden)]
    vector, outputs = torch.randn(hidden), [torch.empty(len(weight)) for weight in weights]

    def run() -> None:
        for _ in range(steps):
            for weight, output in zip(weights, outputs, strict=True):
                torch.mv(weight, vector, out=output)

    return run


if __name__ == "__main__":
    main()

"""The kind of each attention head, on matrices made for it, and on others that come near."""

import pytest
import torch

from chainrule.diagnostics import HeadFigures, mixer_views
from chainrule.diagnostics._mixer_views import FARTHEST, key_masks
from chainrule.models import TransformerLM
from chainrule.state import leaves
from chainrule_app.tasks.text.head_inspection import cache_size

T = 48
VARIED = torch.randint(30, (2, T), generator=torch.Generator().manual_seed(0))  # few symbols are repeated often
VARIED[:, 0] = 30


def looking(*places: tuple[float, int]) -> torch.Tensor:
    """(T, T): shares of the weight at distances back; what is left, or out of sight, is on the start symbol."""
    weights = torch.zeros(T, T)
    for query in range(T):
        for share, back in places:
            if query - back >= 0:
                weights[query, query - back] += share
        weights[query, 0] += 1 - weights[query].sum()
    return weights


def on(wanted: str, share: float, symbols: torch.Tensor) -> torch.Tensor:
    """(B, T, T): a share of the weight on keys of a kind, evenly, the rest even over all; even where there is none."""
    weights = torch.ones(len(symbols), T, T).tril()
    weights /= weights.sum(2, keepdim=True)
    for row, line in enumerate(symbols.tolist()):
        for t in range(T):
            if wanted == "induction":
                keys = [s for s in range(1, t + 1) if line[s - 1] == line[t] != line[s]]
            else:
                keys = [s for s in range(t) if line[s] == line[t]]
            if keys:
                weights[row, t] *= 1 - share
                weights[row, t, keys] += share / len(keys)
    return weights


def kind(weights: torch.Tensor, symbols: torch.Tensor = VARIED) -> str:
    weights = weights.expand(len(symbols), 1, T, T) if weights.dim() == 2 else weights.unsqueeze(1)
    [figures] = HeadFigures.of(weights, symbols)
    return figures.kind


def even() -> torch.Tensor:
    return torch.ones(T, T).tril() / torch.arange(1, T + 1).unsqueeze(1)


@pytest.mark.parametrize(
    ("expected", "made", "near"),
    [
        ("start", looking(), looking((0.65, 9), (0.35, 0))),
        ("present token", looking((0.5, 0), (0.3, 5), (0.2, 6)), looking((0.35, 0), (0.35, 1), (0.3, 3))),
        ("previous token", looking((0.5, 1), (0.3, 5)), looking((0.35, 1), (0.3, 0), (0.35, 3))),
        ("position", looking((0.5, 7), (0.3, 5)), looking((0.35, 7), (0.35, 8), (0.3, 9))),
        ("same token", on("same", 0.6, VARIED), on("same", 0.2, VARIED)),
        ("induction", on("induction", 0.6, VARIED), on("induction", 0.2, VARIED)),
        ("broad", even(), 0.4 * even() + 0.6 * looking((0.35, 1), (0.35, 3), (0.3, 5))),
        ("mixed", looking((0.3, 1), (0.3, 3), (0.3, 5)), even()),
    ],
)
def test_a_head_is_of_the_kind_that_its_matrix_was_made_for_and_a_near_miss_is_not(expected, made, near):
    assert kind(made) == expected
    assert kind(near) != expected


def test_a_head_of_a_fixed_position_says_how_far_back_it_looks():
    [figures] = HeadFigures.of(looking((0.6, 7), (0.2, 5)).expand(2, 1, T, T), VARIED)
    assert (figures.offset, round(figures.score, 2)) == (7, 0.6)


def test_looking_where_frequent_symbols_are_is_not_looking_for_the_same_symbol():
    often = torch.zeros(1, T, dtype=torch.long)
    often[:, ::5] = 1
    often[:, 0] = 2
    [figures] = HeadFigures.of(even()[None, None], often)
    masks = key_masks(often)["same token"][0].double()
    assert (even().double() * masks).sum(1)[10:].mean() > 0.4  # of the weight, and yet
    assert figures.shares["same token"] == pytest.approx(0, abs=1e-6)
    assert figures.kind == "broad"


def test_of_several_rules_that_apply_the_largest_number_decides():
    assert kind(looking((1.0, 1))) == "previous token"
    assert kind(looking((1.0, 3))) == "position"
    period = (torch.arange(T) % 4).repeat(2, 1)  # what followed the symbol stands three back
    period[:, 0] = 30
    [figures] = HeadFigures.of(looking((0.7, 3)).expand(2, 1, T, T), period)
    assert 0.4 < figures.shares["induction"] < figures.shares["position"]
    assert (figures.kind, figures.offset) == ("position", 3)
    assert kind(on("induction", 0.8, period), period) == "induction"


def test_entropy_and_distance_are_those_of_the_definition():
    [figures] = HeadFigures.of(looking((0.5, 0), (0.5, 2))[None, None], VARIED[:1])
    whole = torch.arange(1, T + 1).double()
    assert figures.even == pytest.approx(whole[1:].log2().mean().item())
    assert figures.entropy == pytest.approx(1)  # the second query too: half on itself, half on the start
    assert figures.distance == pytest.approx((1 * 0.5 + (T - 2) * 1) / (T - 1))


def test_what_stands_past_a_rows_end_counts_nowhere():
    symbols, weights = VARIED[:1].clone(), looking((1.0, 1))[None, None].clone()
    symbols[0, 20:] = -1
    weights[:, :, 20:] = torch.nan
    [figures] = HeadFigures.of(weights, symbols)
    assert figures.shares["previous token"] == pytest.approx(1)
    with pytest.raises(ValueError, match="expected a query"):
        HeadFigures.of(weights[:, :, :1, :1], symbols[:, :1])
    with pytest.raises(ValueError, match=r"expected \(B, H, T, T\)"):
        HeadFigures.of(weights[:, :, :4], symbols)


def test_every_kind_has_a_rule_with_its_number():
    assert set(HeadFigures.RULES) == {
        "start",
        "present token",
        "previous token",
        "position",
        "same token",
        "induction",
        "broad",
        "mixed",
    }
    assert all(any(sign.isdigit() for sign in rule) for name, rule in HeadFigures.RULES.items() if name != "mixed")
    assert FARTHEST >= 2


@pytest.mark.parametrize(
    "attention", ["softmax", "gated-linear", "retention", "linear", "delta", "min-gru", "min-lstm"]
)
def test_a_view_shows_the_weights_or_the_gates_of_each_block(attention):
    torch.manual_seed(0)
    model = TransformerLM(7, model_size=8, num_layers=2, num_heads=2, attention=attention, context_length=5).eval()
    x, lengths = torch.randint(7, (3, 12)), torch.tensor([12, 4, 7])
    views, bits = mixer_views(model, x, lengths)
    terms = -model(x, lengths=lengths).log_prob(x) / torch.tensor(2.0).log()
    torch.testing.assert_close(bits[1, :4], terms[1, :4])
    assert bits[1, 4:].eq(0).all()
    for view in views:
        if attention == "softmax":
            torch.testing.assert_close(view.weights.sum(2), torch.ones(2, 12))
            assert view.weights[:, 9, :5].eq(0).all()  # out of the window
            assert len(view.heads) == 2
        else:
            assert len(view.retention) == (8 if attention.startswith("min") else 2)
            assert all(0 < share <= 1 for share in view.retention)
    assert [share == 1 for share in views[0].retention] == (
        [True, True] if attention in ("linear", "delta") else [False] * len(views[0].retention)
    )


@pytest.mark.parametrize("attention", ["softmax", "gated-linear", "min-gru"])
def test_the_memory_that_is_told_is_that_of_the_state(attention):
    options = {"num_kv_heads": 1} if attention == "softmax" else {}
    model = TransformerLM(7, model_size=8, num_layers=3, num_heads=2, attention=attention, window=6, **options).eval()
    size, state, x_prev = cache_size(model), model.initial_state(1), None
    for read in range(1, 9):
        _, state = model.step(x_prev, state)
        x_prev = torch.zeros(1, dtype=torch.long)
        taken = sum(leaf.numel() * leaf.element_size() for leaf in leaves(state) if leaf.is_floating_point())
        assert taken == min(read, size.elements or read) * size.element + size.constant
    assert taken == size.most

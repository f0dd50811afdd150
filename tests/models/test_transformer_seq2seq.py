"""The translator of attention: searches with a shared memory, the training objective, and what the decoder reads."""

import pytest
import torch

from chainrule.decoding import beam_search
from chainrule.models import TransformerSeq2Seq

SOURCE = {"tokens": torch.tensor([[1, 2, 3], [4, 0, 0], [2, 2, 0]]), "lengths": torch.tensor([3, 0, 2])}


def model(**options):
    torch.manual_seed(0)
    options = {"model_size": 8, "num_layers": 2, "num_heads": 2, **options}
    return TransformerSeq2Seq(5, 4, **options).double()


def test_a_search_of_several_rows_finds_what_each_finds_alone_and_the_best_of_all():
    translator = model().eval()
    results = beam_search(translator, SOURCE, beam_size=16, max_length=3, eos=0)
    every = torch.cartesian_prod(*[torch.arange(4)] * 3)
    for row, result in enumerate(results):
        context = {name: leaf[row : row + 1] for name, leaf in SOURCE.items()}
        [alone] = beam_search(translator, context, beam_size=16, max_length=3, eos=0)
        assert result.sequences[0].tolist() == alone.sequences[0].tolist()
        ended = [every[every[:, 0] == 0][:1, :1], every[(every[:, 0] != 0) & (every[:, 1] == 0)][:, :2], every]
        best = -torch.inf
        with torch.no_grad():
            for candidates in ended:
                candidates = candidates[(candidates[:, :-1] != 0).all(1) & (candidates[:, -1] == 0)].unique(dim=0)
                many = {name: leaf.expand(len(candidates), *leaf.shape[1:]) for name, leaf in context.items()}
                best = max(best, translator.log_prob(candidates, many).max().item())
        assert result.log_probs[0].item() == pytest.approx(best, abs=1e-10)


@pytest.mark.parametrize("norm_first", [True, False])
def test_greedy_search_by_prepared_steps_is_the_mode_of_each_pass(norm_first):
    translator = model(norm_first=norm_first, position="alibi").eval()
    drawn = translator.sample(3, SOURCE, length=6, temperature=0)
    assert torch.equal(drawn, translator(drawn, SOURCE).logits.argmax(2))


def test_label_smoothing_mixes_in_the_mean_over_all_symbols():
    translator, x, lengths = model(label_smoothing=0.2), torch.tensor([[1, 0], [2, 3], [3, 0]]), torch.tensor([2, 2, 1])
    log_p = translator(x, SOURCE, lengths).logits
    terms = 0.8 * log_p.gather(2, x.unsqueeze(2)).squeeze(2) + 0.2 * log_p.mean(2)
    expected = terms.masked_fill(torch.arange(2) >= lengths.unsqueeze(1), 0).sum(1)
    torch.testing.assert_close(translator.training_objective(x, SOURCE, lengths), expected)
    assert not torch.allclose(translator.log_prob(x, SOURCE, lengths), expected)


def test_attention_to_the_source_sums_to_one_over_its_words():
    translator = model().eval()
    alpha = translator.attended_by_head(torch.tensor([[1, 2], [1, 2], [3, 0]]), SOURCE)
    assert alpha.shape == (3, 2, 2, 2, 3)
    expected = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64).view(3, 1, 1, 1).expand(3, 2, 2, 2)
    torch.testing.assert_close(alpha.sum(4), expected)
    assert not alpha[2, ..., 2].any()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match='context: expected a dict of "tokens"'):
        model()(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="context: expected 2 rows, or one for all, got 3"):
        model()(torch.zeros(2, 2, dtype=torch.long), SOURCE)
    with pytest.raises(ValueError, match="label_smoothing: expected a number"):
        model(label_smoothing=1.0)
    with pytest.raises(ValueError, match="position: expected one of"):
        model(position="learned")


def test_what_was_attended_to_is_the_mean_over_the_heads_of_the_last_block_but_one():
    translator, x = model(num_layers=3).eval(), torch.tensor([[3, 0], [1, 2], [0, 1]])
    weights = translator.attended_by_head(x, SOURCE)
    assert weights.shape == (3, 3, 2, 2, 3)
    torch.testing.assert_close(translator.attended(x, SOURCE), weights[:, 1].mean(1), rtol=0, atol=1e-12)
    [alone] = model(num_layers=1).eval().attended_by_head(x[:1], {name: leaf[:1] for name, leaf in SOURCE.items()})
    assert alone.shape == (1, 2, 2, 3)

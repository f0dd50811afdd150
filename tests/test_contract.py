"""The contract over every exported model: one without a factory here fails."""

import inspect

import pytest
import torch
from small_models import EVERY, LABELLERS, LATENT, SEQUENCES, pixels

from chainrule import models
from chainrule._base import AutoregressiveModel, LikelihoodModel
from chainrule._checks import length_mask
from chainrule._latent import LatentModel
from chainrule.coding import decode, encode
from chainrule.state import map_state
from chainrule.testing._stepping import check_codec

EXPORTED = {name: getattr(models, name) for name in models.__all__}
PRIVATE = {"LogitsModel"}  # that `from_logits` returns


def exported(kind):
    return {
        name
        for name, member in EXPORTED.items()
        if isinstance(member, type) and issubclass(member, kind) and not inspect.isabstract(member)
    }


def test_every_exported_model_has_a_factory():
    sequences = exported(AutoregressiveModel)
    assert sequences == SEQUENCES.keys() - PRIVATE
    assert exported(LikelihoodModel) - sequences == LABELLERS.keys()
    assert exported(LatentModel) == LATENT.keys()
    others = exported(torch.nn.Module) - exported(LikelihoodModel) - exported(LatentModel)
    assert others == {"Autoencoder"}  # in tests/models/test_vae.py


@pytest.fixture
def kept(keeps_contract):
    def keep(factories, name):
        torch.manual_seed(0)
        model, arguments = factories[name]()
        assert type(model) is EXPORTED.get(name, type(model))
        return keeps_contract(model, *arguments)

    return keep


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_exported_model_of_sequences_keeps_the_contract(kept, name):
    kept(SEQUENCES, name)


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_exported_model_of_discrete_sequences_encodes_and_decodes_them(name):
    torch.manual_seed(0)
    model, (x, *others) = SEQUENCES[name]()
    result = check_codec(model, x, *others)
    assert result.ok, result
    real = ("ForecastMixture", "Forecaster", "LinearForecaster")
    assert result.applies == (name not in real), result
    if result.applies:
        context = map_state(lambda leaf: leaf[:1], others[0] if others else None)
        data = encode(model, x[:1], context)
        assert torch.equal(decode(model, data, context), x[:1])


@pytest.mark.parametrize("name", LABELLERS)
def test_every_exported_model_of_labels_keeps_the_contract(kept, name):
    report = kept(LABELLERS, name)
    of_images = issubclass(getattr(models, name), models.ImageClassifier)
    excused = {"total_probability"} | ({"padding_invariance"} if of_images else set())
    assert all(result.applies for result in report.results if result.name not in excused), report


@pytest.mark.parametrize("name", LATENT)
def test_every_exported_model_with_a_latent_code_keeps_the_contract(kept, name):
    kept(LATENT, name)


def log_prob(model, x, context=None, lengths=None):
    """The log-likelihood, or of a latent model the bound by the same draws."""
    if not isinstance(model, LatentModel):
        return model.log_prob(x, context, lengths)
    return model.importance_bound(x, 3, torch.Generator().manual_seed(0), lengths=lengths)


@pytest.mark.parametrize("name", [*SEQUENCES, "SequenceTagger"])
def test_lengths_that_do_not_fit_are_refused(name):
    model, (x, *others) = {**SEQUENCES, **LABELLERS}[name]()
    time = model.to_sequence(x).shape[1] if name in SEQUENCES else x.shape[1]
    for lengths in ([time + 1, 1, 1], [1, -1, 1], [1], [1, 1, 1, 1]):
        with pytest.raises(ValueError, match=r"^lengths: expected "):
            model.log_prob(x, others[0] if others else None, torch.tensor(lengths))


def with_lengths(context, lengths):
    return {**context, "lengths": torch.tensor(lengths)}


@pytest.mark.parametrize("cell", ["lstm", "transformer", None])
@pytest.mark.parametrize("lengths", [[7, 1, 1], [1, -1, 1], [1], [1, 1, 1, 1]])
def test_lengths_of_a_condition_that_do_not_fit_are_refused(cell, lengths):
    inputs = {"inputs": pixels(3, 6, levels=5)}
    tokens = {"tokens": pixels(3, 6, levels=5)}
    if cell is None:
        calls = [(SEQUENCES[name]()[0], pixels(3, 2), tokens) for name in ("Seq2Seq", "TransformerSeq2Seq")]
        calls += [(LABELLERS["SequenceRegressor"]()[0], torch.zeros(3, 1), {"inputs": torch.zeros(3, 6, 2)})]
    else:
        model = models.SequenceClassifier(num_classes=3, vocab_size=5, hidden_size=8, cell=cell)
        calls = [(model, torch.arange(3), inputs)]
    for model, x, context in calls:
        with pytest.raises(ValueError, match=r"^(lengths|context): expected "):
            model.log_prob(x, with_lengths(context, lengths))


@pytest.mark.parametrize("name", EVERY)
def test_no_rows_have_no_log_likelihoods(name):
    model, arguments = EVERY[name]()
    assert log_prob(model, *map_state(lambda leaf: leaf[:0], arguments)).shape == (0,)


OPEN = [name for name in EVERY if len(EVERY[name]()[1]) == 3 and name != "SequenceTagger"]


@pytest.mark.parametrize("name", OPEN)
def test_rows_without_elements_have_log_likelihood_zero(name):
    model, (x, context, lengths) = EVERY[name]()
    for given in (None, torch.zeros_like(lengths)):
        found = log_prob(model.eval(), x[:, :0], context, given)
        expected = torch.zeros_like(found)
        if isinstance(model, LatentModel):  # a bound draws codes all the same
            torch.testing.assert_close(found, expected, atol=10.0, rtol=0)
        else:
            assert torch.equal(found, expected)


@pytest.mark.parametrize("name", [name for name in OPEN if name in SEQUENCES])
def test_forward_reads_no_padding(name):
    model, (x, context, lengths) = SEQUENCES[name]()
    real = length_mask(lengths, x.shape[1])
    padded = x.masked_fill(~real.view(3, -1, *[1] * (x.dim() - 2)), -1)
    torch.manual_seed(0)
    found = model.eval()(padded, context, lengths).log_prob(x)
    torch.testing.assert_close(found[real], model(x, context, lengths).log_prob(x)[real])


WITH_SYMBOLS = (
    "LogitsModel",
    "RecurrentLM",
    "Seq2Seq",
    "TransformerLM",
    "TransformerSeq2Seq",
    "VectorToSequence",
    "WaveNet",
)


@pytest.mark.parametrize("name", WITH_SYMBOLS)
def test_symbols_out_of_range_are_refused(name):
    model, (x, context, _) = SEQUENCES[name]()
    for symbol in (-1, 9):
        x[1, 1] = symbol
        with pytest.raises(ValueError, match=rf"^x: expected symbols in \[0, \d\), got {symbol}: mask padding"):
            model.log_prob(x, context)
    with pytest.raises(ValueError, match=r"^x: expected symbols \(B, T\), got shape \(3,\)"):
        model(x[:, 0], context)


@pytest.mark.parametrize("name", WITH_SYMBOLS)
@pytest.mark.parametrize("symbol", [-1, 9])
def test_a_step_refuses_symbols_out_of_range(name, symbol):
    model, (x, context, _) = SEQUENCES[name]()
    state = model.initial_state(len(x), context)
    wrong = torch.full((len(x),), symbol)
    with pytest.raises(ValueError, match=rf"^x_prev: expected symbols in \[0, \d\), got {symbol}: "):
        model.step(wrong, state)


def narrow(state):
    """Integers as bytes."""
    return map_state(lambda leaf: leaf if leaf.is_floating_point() else leaf.to(torch.uint8), state)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("Forecaster", "RNNMADE")])
def test_bytes_are_read_as_integers(name):
    torch.manual_seed(0)
    model, arguments = EVERY[name]()
    model.eval()
    assert torch.equal(log_prob(model, *narrow(arguments)), log_prob(model, *arguments))
    if name in SEQUENCES:
        x, context = (*arguments, None)[:2]
        prefix, length = model.to_sequence(x)[:, :2], model.to_sequence(x).shape[1]
        drawn = [
            model.sample(3, c, prefix=p, length=length, generator=torch.Generator().manual_seed(0))
            for c, p in ((context, prefix), (narrow(context), narrow(prefix)))
        ]
        assert torch.equal(*drawn)

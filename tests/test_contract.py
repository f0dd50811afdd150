"""The contract over every exported model: one without a factory here fails."""

import inspect

import pytest
import torch

from chainrule import models
from chainrule.base import AutoregressiveModel, LikelihoodModel, length_mask
from chainrule.coding import decode, encode
from chainrule.heads import Column
from chainrule.latent import LatentModel
from chainrule.layers import TemplateScores
from chainrule.layers.image_encoder import ImageEncoder
from chainrule.state import map_state
from chainrule.testing import check_codec, check_model


def pixels(*shape, levels=2):
    return torch.randint(levels, shape)


class Recurrence(torch.nn.Module):
    """Logits and a cache, as modules return them that know nothing of the contract."""

    def __init__(self):
        super().__init__()
        self.embedding, self.output = torch.nn.Embedding(4, 6), torch.nn.Linear(8, 4)
        self.into, self.across = torch.nn.Linear(6, 8), torch.nn.Linear(8, 8)

    def forward(self, x, hidden=None):
        features, h = [], self.into.weight.new_zeros(len(x), 8) if hidden is None else hidden[0]
        for inputs in self.into(self.embedding(x)).unbind(1):
            h = (inputs + self.across(h)).tanh()
            features.append(h)
        return self.output(torch.stack(features, 1)), h.unsqueeze(0)  # layers first


def labelled(model):
    """A classifier of images, with a label and an image for each of 3 rows."""
    return model, (torch.arange(3), pixels(3, *model.image_shape, levels=4))


# For each model what makes a small one, and what it is checked on: x, context and lengths.
SEQUENCES = {
    "CalibratedMixture": lambda: (
        models.CalibratedMixture(
            models.RecurrentLM(vocab_size=4, cell="gru", hidden_size=8), models.NgramLM.fit(pixels(40, levels=4), 4, 3)
        ),
        (pixels(3, 6, levels=4), None, torch.tensor([6, 2, 4])),
    ),
    "Captioner": lambda: (
        models.Captioner(5, ImageEncoder((8, 8)), embedding_size=6, hidden_size=7),
        (pixels(3, 4, levels=5), pixels(3, 3, 8, 8, levels=256).to(torch.uint8), torch.tensor([4, 2, 3])),
    ),
    "Ensemble": lambda: (
        models.Ensemble(
            [models.RecurrentLM(4, cell, hidden_size=8, ngram_order=2, embedding_size=4) for cell in ("gru", "lstm")]
        ),
        (pixels(3, 6, levels=4), None, torch.tensor([6, 2, 4])),
    ),
    "Forecaster": lambda: (
        models.Forecaster([models.SeriesScaling(20.0, 4.0)], hidden_size=8, lags=[1, 2]),
        (20 + torch.randn(3, 5).cumsum(1), {"past": 20 + torch.randn(3, 6).cumsum(1)}, torch.tensor([5, 2, 4])),
    ),
    "GatedPixelCNN": lambda: (models.GatedPixelCNN((1, 4, 4), 2, channels=8, layers=2), (pixels(3, 1, 4, 4),)),
    "ImageTransformer": lambda: (
        models.ImageTransformer((1, 4, 4), 2, model_size=8, num_layers=2, num_heads=2, window=5),
        (pixels(3, 1, 4, 4),),
    ),
    "LinearForecaster": lambda: (
        models.LinearForecaster([models.SeriesScaling(20.0, 4.0)], lags=[1, 2, 6]).fit(
            20 + torch.randn(40, 1, dtype=torch.float64).cumsum(0), torch.zeros(40, 0)
        ),
        (20 + torch.randn(3, 5).cumsum(1), {"past": 20 + torch.randn(3, 6).cumsum(1)}, torch.tensor([5, 2, 4])),
    ),
    "LogitsModel": lambda: (
        models.from_logits(Recurrence(), start=0),
        (pixels(3, 6, levels=4), None, torch.tensor([6, 2, 4])),
    ),
    "MADE": lambda: (models.MADE(6, [12]), (pixels(3, 6).float(),)),
    "MultiScalePixelCNN": lambda: (
        models.MultiScalePixelCNN((1, 4, 4), 4, channels=8, layers=1, components=2),
        (pixels(3, 1, 4, 4, levels=4),),
    ),
    "NgramLM": lambda: (
        models.NgramLM.fit(pixels(40, levels=4), 4, 3),
        (pixels(3, 6, levels=4), None, torch.tensor([6, 2, 4])),
    ),
    "PixelCNN": lambda: (models.PixelCNN((1, 4, 4), 2, channels=8, layers=2), (pixels(3, 1, 4, 4),)),
    "PixelCNNPP": lambda: (
        models.PixelCNNPP((1, 4, 4), 4, channels=8, layers=1, components=2),
        (pixels(3, 1, 4, 4, levels=4),),
    ),
    "PixelRNN": lambda: (
        models.PixelRNN((1, 4, 4), 2, "diagonal", channels=8, layers=2, first_kernel_size=3),
        (pixels(3, 1, 4, 4),),
    ),
    "RNNMADE": lambda: (
        models.RNNMADE(num_features=3, hidden_size=8, made_hidden=[8]),
        (pixels(3, 5, 3).float(), None, torch.tensor([5, 2, 4])),
    ),
    "RecurrentLM": lambda: (
        models.RecurrentLM(vocab_size=4, cell="gru", hidden_size=8),
        (pixels(3, 6, levels=4), None, torch.tensor([6, 2, 4])),
    ),
    "Seq2Seq": lambda: (
        models.Seq2Seq(5, 4, hidden_size=8, embedding_size=6, label_smoothing=0.1),
        (
            pixels(3, 5, levels=4),
            {"tokens": pixels(3, 4, levels=5), "lengths": torch.tensor([4, 2, 3])},
            torch.tensor([5, 2, 4]),
        ),
    ),
    "TableMADE": lambda: (
        models.TableMADE([Column("categorical", categories=3), Column("categorical", categories=2)], 8, 1),
        (torch.stack([torch.arange(3.0), torch.tensor([0.0, 1.0, 1.0])], 1),),
    ),
    "TransformerLM": lambda: (
        models.TransformerLM(4, model_size=8, num_layers=2, num_heads=2, window=3, ngram_order=2),
        (pixels(3, 9, levels=4), None, torch.tensor([9, 2, 4])),
    ),
    "TransformerSeq2Seq": lambda: (
        models.TransformerSeq2Seq(5, 4, model_size=8, num_layers=1, num_heads=2, label_smoothing=0.1),
        (
            pixels(3, 5, levels=4),
            {"tokens": pixels(3, 4, levels=5), "lengths": torch.tensor([4, 2, 3])},
            torch.tensor([5, 2, 4]),
        ),
    ),
    "VectorToSequence": lambda: (
        models.VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8),
        (pixels(3, 6, levels=4), torch.randn(3, 3), torch.tensor([6, 2, 4])),
    ),
    "WaveNet": lambda: (
        models.WaveNet(levels=5, channels=6, skip_channels=7, layers_per_block=2, blocks=1),
        (pixels(3, 12, levels=5), None, torch.tensor([12, 5, 1])),
    ),
}


# Models of y given a sequence or an image: what they predict, and from what.
def templates():
    scores = TemplateScores("abcd", 3)
    torch.nn.init.normal_(scores.table[:-1])
    return scores


LABELLERS = {
    "CompactTransformer": lambda: labelled(
        models.CompactTransformer((1, 4, 4), 3, 4, convolutions=1, model_size=8, num_layers=1, num_heads=2)
    ),
    "ConvNet": lambda: labelled(models.ConvNet((1, 4, 4), 3, 4, channels=4, stages=2)),
    "SwinTransformer": lambda: labelled(
        models.SwinTransformer((1, 8, 8), 3, 4, window=2, model_size=8, num_heads=2, stages=1)
    ),
    "VisionTransformer": lambda: labelled(
        models.VisionTransformer((1, 4, 4), 3, 4, patch_size=2, model_size=8, num_layers=1, num_heads=2)
    ),
    "SequenceClassifier": lambda: (
        models.SequenceClassifier(num_classes=3, vocab_size=5, embedding_size=4, hidden_size=4, ngram_order=2),
        (torch.arange(3), {"inputs": pixels(3, 6, levels=5), "lengths": torch.tensor([6, 2, 4])}),
    ),
    "SequenceRegressor": lambda: (
        models.SequenceRegressor(2, hidden_size=4),
        (torch.randn(3, 1), {"inputs": torch.randn(3, 6, 2), "lengths": torch.tensor([6, 2, 4])}),
    ),
    "SequenceTagger": lambda: (
        models.SequenceTagger(3, 5, 4, embedding_size=4, hidden_size=4, character_size=4, templates=templates()),
        (
            pixels(3, 6, levels=3),
            {"words": pixels(3, 6, levels=5), "characters": pixels(3, 6, 2, levels=5)},
            torch.tensor([6, 2, 4]),
        ),
    ),
}

# Models with a latent code, and rows for them.
LATENT = {
    "HierarchicalVAE": lambda: (
        models.HierarchicalVAE((1, 3, 2), 2, 4, hidden_size=4, channels=4, num_layers=2),
        (pixels(3, 1, 3, 2),),
    ),
    "PixelVAE": lambda: (
        models.PixelVAE((1, 3, 3), 2, 2, hidden_size=4, num_layers=2, channels=4, decoder_channels=4, decoder_layers=1),
        (pixels(3, 1, 3, 3),),
    ),
    "SentenceVAE": lambda: (
        models.SentenceVAE(3, 2, embedding_size=4, hidden_size=4, max_length=4, eos=0),
        (pixels(3, 4, levels=3), None, torch.tensor([4, 1, 2])),
    ),
    "TableVAE": lambda: (
        models.TableVAE([Column("categorical", categories=3), Column("real", missing=True)], 2, 8),
        (torch.tensor([[0.0, 1.5], [2.0, torch.nan], [1.0, -0.5]]),),
    ),
    "VAE": lambda: (models.VAE((3, 2, 2), 4, 2, hidden_size=8, components=2), (pixels(3, 3, 2, 2, levels=4),)),
}


def exported(kind):
    found = {name: getattr(models, name) for name in models.__all__}
    return {
        name
        for name, member in found.items()
        if isinstance(member, type) and issubclass(member, kind) and not inspect.isabstract(member)
    }


def test_every_exported_model_has_a_factory():
    sequences = exported(AutoregressiveModel)
    assert sequences == SEQUENCES.keys()
    assert exported(LikelihoodModel) - sequences == LABELLERS.keys()
    assert exported(LatentModel) == LATENT.keys()
    others = exported(torch.nn.Module) - exported(LikelihoodModel) - exported(LatentModel)
    assert others == {"Autoencoder", "MADEEnsemble"}  # no density, tests/models/test_autoencoder.py; a mixture, below


def kept(factories, name):
    torch.manual_seed(0)
    model, arguments = factories[name]()
    assert type(model) is getattr(models, name)
    report = check_model(model, *arguments)
    assert report.ok, report
    return report


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_exported_model_of_sequences_keeps_the_contract(name):
    kept(SEQUENCES, name)


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_exported_model_of_discrete_sequences_encodes_and_decodes_them(name):
    torch.manual_seed(0)
    model, (x, *others) = SEQUENCES[name]()
    result = check_codec(model, x, *others)
    assert result.ok, result
    assert result.applies == (name not in ("Forecaster", "LinearForecaster")), result  # whose values are real numbers
    if result.applies:
        context = map_state(lambda leaf: leaf[:1], others[0] if others else None)
        data = encode(model, x[:1], context, portable=True)
        assert torch.equal(decode(model, data, context), x[:1])


@pytest.mark.parametrize("name", LABELLERS)
def test_every_exported_model_of_labels_keeps_the_contract(name):
    report = kept(LABELLERS, name)
    of_images = issubclass(getattr(models, name), models.ImageClassifier)
    excused = {"total_probability"} | ({"padding_invariance"} if of_images else set())
    assert all(result.applies for result in report.results if result.name not in excused), report


@pytest.mark.parametrize("name", LATENT)
def test_every_exported_model_with_a_latent_code_keeps_the_contract(name):
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


EVERY = {**SEQUENCES, **LABELLERS, **LATENT}


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


def test_the_ensemble_adds_up_to_one():
    ensemble = models.MADEEnsemble(models.MADE(3, [4]), 2, generator=torch.Generator().manual_seed(0))
    x = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)
    torch.testing.assert_close(ensemble.log_prob(x).exp().sum(), torch.tensor(1.0))

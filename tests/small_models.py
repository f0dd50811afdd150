"""A small model of every exported kind, with rows for it: arguments of `log_prob`, or of a latent model's bounds."""

import torch

from chainrule import from_logits, models
from chainrule.heads import Column
from chainrule.layers import ImageEncoder, TemplateScores
from chainrule.models._series_window import SeriesScaling


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


def near_rows(network, rows):
    """A network of two categorical columns whose last one also counts near rows."""
    model = models.TableNeighbours(network, rows)
    model.set_levels([(1.0, 1.0), (0.1, 3.0)])
    return model


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
    "ForecastMixture": lambda: (
        models.ForecastMixture(
            models.Forecaster([SeriesScaling(20.0, 4.0)], hidden_size=8, lags=[1, 2]), [SeriesScaling(20.0, 4.0)]
        ).fit(20 + torch.randn(12, 1, dtype=torch.float64).cumsum(0), torch.zeros(12, 0)),
        (20 + torch.randn(3, 5).cumsum(1), {"past": 20 + torch.randn(3, 6).cumsum(1)}, torch.tensor([5, 2, 4])),
    ),
    "Forecaster": lambda: (
        models.Forecaster([SeriesScaling(20.0, 4.0)], hidden_size=8, lags=[1, 2]),
        (20 + torch.randn(3, 5).cumsum(1), {"past": 20 + torch.randn(3, 6).cumsum(1)}, torch.tensor([5, 2, 4])),
    ),
    "GatedPixelCNN": lambda: (models.GatedPixelCNN((1, 4, 4), 2, channels=8, layers=2), (pixels(3, 1, 4, 4),)),
    "ImageTransformer": lambda: (
        models.ImageTransformer((1, 4, 4), 2, model_size=8, num_layers=2, num_heads=2, window=5),
        (pixels(3, 1, 4, 4),),
    ),
    "LinearForecaster": lambda: (
        models.LinearForecaster([SeriesScaling(20.0, 4.0)], lags=[1, 2, 6]).fit(
            20 + torch.randn(40, 1, dtype=torch.float64).cumsum(0), torch.zeros(40, 0)
        ),
        (20 + torch.randn(3, 5).cumsum(1), {"past": 20 + torch.randn(3, 6).cumsum(1)}, torch.tensor([5, 2, 4])),
    ),
    "LogitsModel": lambda: (
        from_logits(Recurrence(), start=0),
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
    "TableEnsemble": lambda: (
        models.TableEnsemble(
            [
                models.TableMADE([Column("categorical", categories=3), Column("categorical", categories=2)], 8, 1)
                for _ in range(2)
            ]
        ),
        (torch.stack([torch.arange(3.0), torch.tensor([0.0, 1.0, 1.0])], 1),),
    ),
    "TableNeighbours": lambda: (
        near_rows(
            models.TableMADE([Column("categorical", categories=3), Column("categorical", categories=2)], 8, 1),
            torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 1.0]]),
        ),
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
    "PixelVAE": lambda: (
        models.PixelVAE((1, 3, 3), 2, 2, hidden_size=4, num_layers=2, channels=4, decoder_channels=4, decoder_layers=1),
        (pixels(3, 1, 3, 3),),
    ),
    "VAE": lambda: (models.VAE((3, 2, 2), 4, 2, hidden_size=8, components=2), (pixels(3, 3, 2, 2, levels=4),)),
}

EVERY = {**SEQUENCES, **LABELLERS, **LATENT}

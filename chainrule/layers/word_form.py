"""Features of a word from its form: a convolution over its characters, and its affixes."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule.layers.affix_embedding import AffixEmbedding
from chainrule.layers.character_encoder import CharacterEncoder

_BUCKETS = 2**14


@final
class WordForm(nn.Module):
    r"""Features of a word from all of its characters, and from its affixes, which training often leaves out.

    .. math:: e(w) = [\mathrm{cnn}(w),\ m\, \mathrm{affixes}(w)], \qquad
        m = \tfrac{1}{1 - p} \text{ with probability } 1 - p \text{, else } 0 \text{; after training } m = 1

    Affixes are learned faster, but the model also overfits to them: they identify most words of the training data.
    Leaving them out at random forces the convolution to predict alone, so that both kinds of features are learned.

    Args:
        num_characters: V; characters are integers in [1, V], and 0 pads.
        output_size: N; half of e(w) is of each kind.
        dropout: p, share of words whose affixes are left out in training.

    Raises:
        ValueError: an argument is out of range.

    >>> form = WordForm(num_characters=26, output_size=8)
    >>> form(torch.tensor([[[3, 1, 20], [0, 0, 0]]])).shape  # cat, and no word
    torch.Size([1, 2, 8])
    """

    def __init__(self, num_characters: int, output_size: int = 128, dropout: float = 0.5):
        super().__init__()
        if output_size < 2:
            raise ValueError(f"output_size: expected at least 2, one of each kind, got {output_size}")
        half = output_size // 2
        self.characters = CharacterEncoder(num_characters, output_size=output_size - half, kind="cnn")
        self.affixes = AffixEmbedding(num_characters, half, buckets=_BUCKETS, dropout=dropout)

    def forward(self, characters: Tensor) -> Tensor:
        """Read words.

        Args:
            characters: (..., K) integers: 1 to V, then 0 past each word's end.

        Returns:
            (..., N); zeros for a word without characters.
        """
        return torch.cat([self.characters(characters), self.affixes(characters)], -1)

"""Features of a word from its characters, for words never seen in training."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule._modes import values_are_known
from chainrule._ranges import check_shares, check_sizes
from chainrule.layers._bidirectional import Bidirectional

CHARACTER_ENCODERS = ("lstm", "cnn")
_WIDTH = 3  # characters that a filter of the CNN sees


@final
class CharacterEncoder(nn.Module):
    r"""Features of words from their characters, by a bidirectional LSTM or a convolution.

    .. math::
        \mathrm{lstm:}\quad [\overrightarrow{h}_K, \overleftarrow{h}_1] \qquad\qquad
        \mathrm{cnn:}\quad \max_{k} \left( b + \sum_{j=-1}^{1} W_j\, e_{k+j} \right)

    with :math:`e_k` the embedding of the k-th of K characters, 0 outside the word: Ling et al. 2015 and Lample et al.
    2016; dos Santos and Zadrozny 2014 and Ma and Hovy 2016. A batch of text repeats its words: each different word is
    read once, and its features are copied to each of its places.

    Args:
        num_characters: V; characters are integers in [1, V], and 0 pads.
        embedding_size: width of the embedding of a character.
        output_size: N, features of a word; for "lstm" half of them from each direction.
        kind: "lstm" or "cnn".
        dropout: probability of zeroing in training, on the embeddings.

    Raises:
        ValueError: an argument is out of range.

    >>> encoder = CharacterEncoder(num_characters=26, output_size=8)
    >>> encoder(torch.tensor([[[3, 1, 20], [0, 0, 0]], [[1, 0, 0], [3, 1, 20]]])).shape  # cat, nothing; a, cat
    torch.Size([2, 2, 8])
    """

    def __init__(
        self,
        num_characters: int,
        embedding_size: int = 32,
        output_size: int = 100,
        kind: str = "lstm",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(num_characters=num_characters, embedding_size=embedding_size, output_size=output_size)
        if kind not in CHARACTER_ENCODERS:
            raise ValueError(f"kind: expected one of {', '.join(CHARACTER_ENCODERS)}, got {kind!r}")
        check_shares(dropout=dropout)
        if kind == "lstm" and output_size % 2:
            raise ValueError(f"output_size: expected an even number, half for each direction, got {output_size}")
        self.num_characters, self.output_size, self.dropout = num_characters, output_size, dropout
        self.embedding = nn.Embedding(num_characters + 1, embedding_size, padding_idx=0)
        self.recurrent = Bidirectional("lstm", embedding_size, output_size // 2) if kind == "lstm" else None
        self.convolution = (
            nn.Conv1d(embedding_size, output_size, _WIDTH, padding=_WIDTH // 2) if kind == "cnn" else None
        )

    def forward(self, characters: Tensor) -> Tensor:
        """Read words.

        Args:
            characters: (..., K) integers: 1 to V, then 0 past each word's end.

        Returns:
            (..., N); zeros for a word without characters.
        """
        if characters.dim() < 2 or characters.is_floating_point():
            raise ValueError(
                f"characters: expected integers (..., K), got {characters.dtype} of {tuple(characters.shape)}"
            )
        if not characters.shape[-1]:
            return self.embedding.weight.new_zeros(*characters.shape[:-1], self.output_size)
        rows = characters.long().reshape(-1, characters.shape[-1])
        if values_are_known(rows):
            words, place = torch.unique(rows, dim=0, return_inverse=True)
            encoded = self._read(words).index_select(0, place)
        else:
            encoded = self._read(rows)
        return encoded.view(*characters.shape[:-1], self.output_size)

    def _read(self, words: Tensor) -> Tensor:
        """(U, K) words -> (U, N), zeros for the word without characters."""
        lengths = (words != 0).sum(1)
        # Reading the word without characters as one letter long spares a case, and its row is zeroed.
        return self._encode(words, lengths).masked_fill((lengths == 0).unsqueeze(1), 0)

    def _encode(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(U, K) words of one letter or more -> (U, N)."""
        embedded = nn.functional.dropout(self.embedding(words), self.dropout, self.training)
        if self.recurrent is not None:
            h, _ = self.recurrent(embedded, lengths)[1]
            last: Tensor = h[-1]
            return last
        assert self.convolution is not None
        features = self.convolution(embedded.transpose(1, 2))  # (U, N, K)
        outside = torch.arange(words.shape[1], device=words.device) >= lengths.unsqueeze(1)
        highest: Tensor = features.masked_fill(outside.unsqueeze(1), -torch.inf).amax(2)
        return highest

"""Features of words from their spelling: characters, affixes and shape."""

from typing import final

import torch
from torch import Tensor, nn

from chainrule._ranges import check_shares, check_sizes
from chainrule.kernels._transforms import values_are_known
from chainrule.layers._ngram_embedding import hashed_rows
from chainrule.layers._row_encoders import Bidirectional

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
            words, index = torch.unique(rows, dim=0, return_inverse=True)
            encoded = self._read(words).index_select(0, index)
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


_INITIAL_STD = 0.1
_BUCKETS = 2**14


@final
class AffixEmbedding(nn.Module):
    r"""Add up embeddings of the prefixes and suffixes of a word, up to N characters, hashed into one table.

    .. math:: e(w) = \sum_{n=1}^{N} E[\mathrm{bucket}(w_1 \ldots w_n)] + E[\mathrm{bucket}(w_{K-n+1} \ldots w_K)]

    Affixes are the features of unknown words in Ratnaparkhi (1996); rows are shared by a hash, as in fastText
    (Bojanowski et al. 2017). A word shorter than n characters has itself as its affix of n characters. No product is
    needed, where a recurrent layer or a convolution over the characters costs as much as the tagger itself. In training
    `dropout` leaves out the whole e(w) of a word.
    """

    def __init__(
        self,
        num_characters: int,
        output_size: int = 64,
        longest: int = 4,
        buckets: int = 2**15,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_shares(dropout=dropout)
        check_sizes(num_characters=num_characters, output_size=output_size, longest=longest, buckets=buckets)
        self.num_characters, self.output_size, self.longest = num_characters, output_size, longest
        self.dropout = dropout
        self.table = nn.Embedding(buckets, output_size)
        nn.init.normal_(self.table.weight, std=_INITIAL_STD)

    def forward(self, characters: Tensor) -> Tensor:
        """Read words, (..., K) integers, 0 past each word's end, to (..., N); zeros for a word without characters."""
        if not characters.shape[-1]:
            return self.table.weight.new_zeros(*characters.shape[:-1], self.output_size)
        lengths = (characters != 0).sum(-1, keepdim=True)
        rows = []
        for order in range(1, self.longest + 1):
            taken = torch.arange(order, device=characters.device)
            for kind, places in enumerate((taken.expand(*lengths.shape[:-1], order), lengths - 1 - taken)):
                inside = (places >= 0) & (places < lengths)
                letters = characters.gather(-1, places.clamp(0, characters.shape[-1] - 1)).where(inside, 0)
                columns = [*letters.unbind(-1), torch.full_like(letters[..., 0], 2 * order + kind)]
                rows.append(hashed_rows(columns, self.table.num_embeddings))
        # One look-up of all: the gradient of each is as large as the table.
        words = nn.functional.embedding_bag(torch.stack(rows, -1).flatten(0, -2), self.table.weight, mode="sum")
        scale = nn.functional.dropout((lengths != 0).to(words.dtype), self.dropout, self.training)
        return words.view(*characters.shape[:-1], self.output_size) * scale


@final
class WordForm(nn.Module):
    r"""Features of a word from all of its characters, and from its affixes, left out in training with p = `dropout`.

    .. math:: e(w) = [\mathrm{cnn}(w),\ m\, \mathrm{affixes}(w)], \qquad
        m = \tfrac{1}{1 - p} \text{ with probability } 1 - p \text{, else } 0 \text{; after training } m = 1

    Affixes are learned faster, but the model also overfits to them: they identify most words of the training data.
    Leaving them out at random forces the convolution to predict alone, so that both kinds of features are learned.
    """

    def __init__(self, num_characters: int, output_size: int = 128, dropout: float = 0.5):
        super().__init__()
        half = output_size // 2
        self.characters = CharacterEncoder(num_characters, output_size=output_size - half, kind="cnn")
        self.affixes = AffixEmbedding(num_characters, half, buckets=_BUCKETS, dropout=dropout)

    def forward(self, characters: Tensor) -> Tensor:
        """Read words, (..., K) integers, 0 past each word's end, to (..., N); zeros for a word without characters."""
        return torch.cat([self.characters(characters), self.affixes(characters)], -1)

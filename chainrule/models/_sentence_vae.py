"""Variational autoencoder of sentences."""

from typing import Literal, Unpack, final

import torch
from torch import Tensor, nn

from chainrule._latent import LatentModel, OneLayerObjective
from chainrule._ranges import Probability, Size, check_shares, check_sizes
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.layers._packing import zero_past_ends
from chainrule.layers._row_encoders import Bidirectional
from chainrule.models._conditioned import Conditioned, lengths_to
from chainrule.models._recurrent_lm import VectorToSequence


@final
class SentenceVAE(LatentModel):
    r"""A normal code of a whole sentence, and a recurrent decoder that starts from it (Bowman et al. 2016).

    .. math:: p(z) = N(0, I), \qquad p(x \mid z) = \prod_t p(x_t \mid x_{<t}, z), \qquad
        q(z \mid x) = N(\mu(x), \mathrm{diag}\,\sigma^2(x))

    The decoder is a `VectorToSequence`; the encoder is bidirectional. A decoder that sees all earlier symbols can do
    without the code; `word_dropout` hides some of them, and `kl_warmup` gives the code time to become useful.

    Args:
        vocab_size: V; x is (B, T) integers in [0, V).
        latent_size: L, numbers of a code.
        cell: recurrence of encoder and decoder.
        embedding_size: width of the embeddings.
        hidden_size: units of the decoder, and of each direction of the encoder.
        dropout: probability of zeroing in the decoder, in training.
        word_dropout: probability of hiding a symbol from the decoder, in training: it reads the start symbol instead.
        max_length: maximum symbols of a sample.
        eos: the symbol that ends a sentence; it also pads samples, and rows without `lengths` are read up to it. `None`
            draws `max_length` symbols.
        objective: objective of training; see `LatentModel`. `kl_warmup` is 0.3 by default.

    >>> model = SentenceVAE(vocab_size=5, latent_size=3, embedding_size=4, hidden_size=8, max_length=6)
    >>> x = model.sample(2, torch.Generator().manual_seed(0))
    >>> x.shape, model.elbo(x, lengths=torch.tensor([6, 2])).shape
    (torch.Size([2, 6]), torch.Size([2]))
    """

    kl_warmup = 0.3

    def __init__(
        self,
        vocab_size: int,
        latent_size: Size = 32,
        *,
        cell: Literal["lstm", "gru", "rnn"] = "gru",
        embedding_size: Size = 256,
        hidden_size: Size = 256,
        dropout: Probability = 0.0,
        word_dropout: Probability = 0.25,
        max_length: Size = 60,
        eos: int | None = None,
        **objective: Unpack[OneLayerObjective],
    ):
        super().__init__(latent_size, **objective)
        check_sizes(embedding_size=embedding_size, max_length=max_length)
        check_shares(word_dropout=word_dropout)
        self.vocab_size, self.word_dropout, self.max_length, self.eos = vocab_size, word_dropout, max_length, eos
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.encoder = Bidirectional(cell, embedding_size, hidden_size)
        self.posterior = nn.Linear(2 * hidden_size, 2 * latent_size)
        self.decoder = VectorToSequence(latent_size, vocab_size, cell, embedding_size, hidden_size, dropout=dropout)
        nn.init.normal_(self.embedding.weight, std=embedding_size**-0.5)

    def encode(self, x: Tensor, *, lengths: Tensor | None = None) -> DiagonalNormal:
        lengths = self._lengths(x, lengths)
        x = check_vocabulary(zero_past_ends(symbols_of(x), lengths), self.vocab_size)
        _, final_state = self.encoder(self.embedding(x), lengths)
        top = final_state[0][-1] if self.decoder.language_model.recurrent.has_cell else final_state[-1]
        return DiagonalNormal(*self.posterior(top).chunk(2, 1))

    def decode(self, z: Tensor) -> Conditioned:
        return Conditioned(self.decoder, z, (self.max_length,), self.eos)

    def log_likelihood(self, x: Tensor, z: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        lengths = self._lengths(x, lengths)
        if not (self.training and self.word_dropout):
            return self.decoder.log_prob(x, z, lengths)
        x = zero_past_ends(symbols_of(x), lengths)
        hidden = torch.rand(x.shape, device=x.device) < self.word_dropout
        model = self.decoder.language_model
        read = model.inputs(x.masked_fill(hidden, self.vocab_size))
        h, _ = model.recurrent(read, self.decoder.initial_state(len(x), z), lengths)
        return zero_past_ends(model.conditional(h).log_prob(x), lengths).sum(1)

    def _lengths(self, x: Tensor, lengths: Tensor | None) -> Tensor | None:
        """Given lengths, or those up to the end of each sentence."""
        return lengths_to(x, self.eos) if lengths is None and self.eos is not None else lengths

    def from_codes(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return a draw from the decoder for each code, (B, max_length)."""
        return self.decode(z).sample(generator=generator)

"""Variational autoencoder of the rows of a table of mixed columns."""

from collections.abc import Sequence
from typing import Annotated, Unpack, final

import torch
from torch import Tensor, nn

from chainrule._latent import LatentModel, OneLayerObjective
from chainrule._ranges import Probability, Range, Size, check_shares, check_sizes
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.heads._joint import Joint
from chainrule.heads._table_column import Column
from chainrule.layers._image_encoder import gated_layers
from chainrule.layers._pointwise import Linear
from chainrule.models._table_layout import TableLayout


@final
class TableVAE(LatentModel):
    r"""A normal code, and columns of any kind that are independent given it (Kingma and Welling 2014).

    .. math:: p(z) = N(0, I), \qquad p(x \mid z) = \prod_d \mathrm{column}_d(x_d \mid g(z)), \qquad
        q(z \mid x) = N(\mu(x), \mathrm{diag}\,\sigma^2(x))

    Columns are read and written as by `TableMADE`, so that their nats can be compared. x is (B, D): codes of
    categories, numbers, NaN where a number is missing.

    Args:
        columns: the D columns.
        latent_size: L, numbers of a code.
        hidden_size: units of each layer.
        num_layers: gated layers, each way.
        components: mixture components of a numeric column.
        dropout: share of the encoder's last features dropped in training. If not given, the task takes 0.5 for few
            rows.
        objective: of training; see `LatentModel`.

    >>> columns = [Column("categorical", categories=3), Column("real", centre=170.0, scale=10.0, missing=True)]
    >>> model = TableVAE(columns, latent_size=2, hidden_size=8)
    >>> x = model.sample(4, torch.Generator().manual_seed(0))
    >>> x.shape, model.elbo(x).shape
    (torch.Size([4, 2]), torch.Size([4]))
    """

    def __init__(
        self,
        columns: Sequence[Column],
        latent_size: Size = 16,
        hidden_size: Size = 256,
        num_layers: Annotated[int, Range(1, 64)] = 2,
        *,
        components: Annotated[int, Range(1, 1 << 10)] = 8,
        dropout: Probability = 0.0,
        **objective: Unpack[OneLayerObjective],
    ):
        super().__init__(latent_size, **objective)
        if not columns:
            raise ValueError("columns: expected at least one, got none")
        check_sizes(hidden_size=hidden_size, num_layers=num_layers, components=components)
        check_shares(dropout=dropout)
        self.columns = tuple(columns)
        self.layout = TableLayout(columns, components)
        features, outputs = len(self.layout.feature_columns), len(self.layout.output_columns)
        self.encoder = nn.Sequential(*gated_layers(features, hidden_size, num_layers), nn.Dropout(dropout))
        self.posterior = nn.Linear(hidden_size, 2 * latent_size)
        self.decoder = nn.Sequential(*gated_layers(latent_size, hidden_size, num_layers))
        self.output = Linear(hidden_size, outputs)
        with torch.no_grad():
            self.layout.initialise(self.output.bias)

    def encode(self, x: Tensor, *, lengths: Tensor | None = None) -> DiagonalNormal:
        if x.dim() != 2 or x.shape[1] != len(self.columns):
            raise ValueError(f"x: expected shape (B, D) with D = {len(self.columns)}, got {tuple(x.shape)}")
        features = self.layout.read(x).to(self.posterior.weight.dtype)
        return DiagonalNormal(*self.posterior(self.encoder(features)).chunk(2, 1))

    def decode(self, z: Tensor) -> Joint:
        return Joint(self.layout.row(self.output(self.decoder(z.to(self.output.weight.dtype)))))

    def exclude(self, symbols: Sequence[int | None]) -> None:
        """Give one symbol of each column probability 0 from now on; see `TableLayout.exclude`."""
        self.layout.exclude(self.output.bias, symbols)

    def from_codes(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return a draw from the decoder for each code, (B, D), float64."""
        return self.decode(z).sample(generator=generator)

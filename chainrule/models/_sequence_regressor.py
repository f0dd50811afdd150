"""A number or numbers for a whole sequence, by least squares."""

import math
from typing import final

import torch
from torch import Tensor, nn

from chainrule._base import Context, LikelihoodModel
from chainrule._ranges import check_sizes
from chainrule.heads._real_mixtures import GaussianMixture
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.models._conditioned import checked_inputs


@final
class SequenceRegressor(LikelihoodModel):
    r"""y given a sequence, y ~ N(ŷ, ½): its log-likelihood is the squared error, with the sign changed.

    .. math:: h_t = \mathrm{cell}(x_t, h_{t-1}), \qquad \hat y = W h_T + b, \qquad
        \log p(y \mid x) = -\lVert y - \hat y \rVert^2 - \tfrac{K}{2} \log \pi

    It predicts a mean and claims nothing about its error: the variance ½ comes from the loss, not from the data. If the
    spread matters, or for several steps, use `Forecaster`.

    Args:
        feature_size: N, numbers of each element.
        num_outputs: K, numbers of the answer.
        hidden_size: M, units of each layer.
        cell: "lstm", "gru" or "rnn".
        num_layers: recurrent layers.
        dropout: probability of zeroing in training, between layers and before the output.

    >>> model = SequenceRegressor(feature_size=2, hidden_size=8)
    >>> context = {"inputs": torch.zeros(3, 6, 2), "lengths": torch.tensor([6, 1, 4])}
    >>> model(context).mean.shape, model.log_prob(torch.zeros(3, 1), context).shape
    (torch.Size([3, 1]), torch.Size([3]))
    """

    def __init__(
        self,
        feature_size: int,
        num_outputs: int = 1,
        hidden_size: int = 64,
        cell: str = "lstm",
        num_layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(num_outputs=num_outputs)
        self.feature_size, self.dropout = feature_size, dropout
        self.recurrent = recurrent_stack(cell, feature_size, hidden_size, num_layers, dropout)
        self.output = nn.Linear(hidden_size, num_outputs)

    def forward(self, context: Context) -> GaussianMixture:
        """p(y | x), of batch shape (B, K); its `mean` is the answer ŷ.

        Args:
            context: the sequences (B, T, N), or `{"inputs": (B, T, N), "lengths": (B,)}`; padding is
                never read.
        """
        inputs, lengths = checked_inputs(context)
        if inputs.dim() != 3 or inputs.shape[2] != self.feature_size or not inputs.is_floating_point():
            raise ValueError(
                f"context: expected real numbers (B, T, {self.feature_size}), "
                f"got shape {tuple(inputs.shape)} of {inputs.dtype}"
            )
        _, state = self.recurrent(inputs.to(self.output.weight.dtype), None, lengths)
        h = (state[0] if isinstance(state, tuple) else state)[:, -1]
        means = self.output(nn.functional.dropout(h, self.dropout, self.training)).unsqueeze(2)
        return GaussianMixture(torch.zeros_like(means), means, torch.full_like(means, math.log(0.5) / 2))

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """log p(y | x) of each row, (B,), nats: −‖y − ŷ‖² − K/2 log π.

        Args:
            x: (B, K) the right answers y; (B,) where K = 1.
            context: the sequences, as `forward` takes them.
            lengths: None: an answer has no length. Those of the sequences are in the context.
        """
        if lengths is not None:
            raise ValueError("lengths: expected None: an answer has no length; put sequence lengths in the context")
        answers = self(context)
        inputs, outputs = answers.batch_shape
        rows = len(x) if inputs == 1 else inputs  # one row of the input for all answers
        if x.shape != (rows, outputs) and (x.shape != (rows,) or outputs != 1):
            raise ValueError(f"x: expected answers of shape {(rows, outputs)}, got {tuple(x.shape)}")
        return answers.log_prob(x.view(rows, outputs)).sum(1)

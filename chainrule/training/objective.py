"""What is minimised: the negative log-likelihood of a batch."""

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel, Context, TrainableModel
from chainrule.latent import LatentModel
from chainrule.state import State, detach
from chainrule.training.precision import autocast


class Objective(nn.Module):
    r"""Negative log-likelihood of a batch, :math:`-\sum_{b,t} \log p(x_{bt} \mid x_{b,<t})`, in nats.

    For a model with a `training_objective` of its own, as label smoothing, minus that of whole sequences in training
    mode; in evaluation mode it is always the likelihood, or the evidence lower bound of a model that has only that.

    Chunks of endless rows continue from the state that the last chunk ended in: its value crosses the boundary,
    gradients do not (truncated backpropagation through time, Williams and Peng 1990). Rows with lengths or a context,
    and those said to be whole, are whole sequences.

    It is a module so that DistributedDataParallel can wrap it.

    Args:
        model: the model that is trained.
        dtype: number format of matrix products, see `multiply_dtype`.
    """

    def __init__(self, model: TrainableModel, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        previous: Tensor | None = None,
        state: State = None,
        context: Context = None,
        *,
        whole: bool = False,
        progress: float = 1.0,
    ) -> tuple[Tensor, State]:
        """The nats of a batch, (), and the detached state after it.

        Args:
            x: (B, T) elements.
            lengths: (B,) real elements of whole sequences; None for a chunk.
            previous: (B,) the element before the chunk; None where the rows begin here.
            state: the state after `previous`; unused where the rows begin here.
            context: what each row is conditioned on.
            whole: rows are whole sequences without lengths.
            progress: how much of the run is done, from 0 to 1, for objectives that change in its course.

        Raises:
            TypeError: chunks of endless rows for a model that cannot go on with them.
        """
        with autocast(self.dtype, x.device):
            if whole or lengths is not None or context is not None:
                return -self._maximised(x, context, lengths, progress).float().sum(), None
            if not isinstance(self.model, AutoregressiveModel):
                raise TypeError(f"expected batches of whole rows for a {type(self.model).__name__}, got chunks")
            if previous is None:
                state = self.model.initial_state(x.shape[0])
            conditionals, state = self.model.unroll(x, state, previous)
            return -conditionals.log_prob(x).float().sum(), detach(state)

    def _maximised(self, x: Tensor, context: Context, lengths: Tensor | None, progress: float) -> Tensor:
        if not self.model.training:
            return self.model.held_out_objective(x, context, lengths)
        if isinstance(self.model, LatentModel):
            return self.model.training_objective(x, context, lengths, progress=progress)
        return self.model.training_objective(x, context, lengths)

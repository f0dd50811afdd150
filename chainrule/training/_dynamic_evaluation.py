r"""Dynamic evaluation: scoring with an adaptive model (Krause et al. 2018).

The elements come in chunks s_1, s_2, ... The model first scores a chunk, then learns from it, so that the sum of all
scores is a valid code length of the whole (prequential, Dawid 1984):

.. math::
    \ell_i = -\log p(s_i \mid s_{<i};\, \theta_i), \qquad
    \theta_{i+1} = \theta_i - \eta \frac{g_i}{\sqrt{v_i} + \epsilon} + \lambda\, (\theta_1 - \theta_i)

with g_i the gradient of ℓ_i divided by the chunk length, and v_i the mean of the squares of :math:`g_1, \ldots, g_i`.
λ pulls the weights back to the trained weights θ_1. Krause et al. compute v on the training data; here it comes from
the scored data, so that a model and a file suffice. The first steps are small, because v is still inaccurate:
:math:`\eta_i = \eta \min(1, i / 20)`.
"""

import copy
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule._checks import check_lengths, fill_padding, length_mask
from chainrule.option_error import OptionError
from chainrule.state import State, detach

RATE = 1e-3
_DECAY = 1e-2
_EPSILON = 1e-5
_WARM_UP = 20  # chunks
_CHUNK_LENGTH = 64


class DynamicEvaluator:
    """An adaptive copy of a model, which learns from each chunk after scoring it; the model itself is not changed.

    Args:
        model: a trained model.
        rate: step size η of each weight, in units of its typical gradient; 0 disables learning.
        decay: λ, the share of the way back to the trained weights per chunk.
        chunk_length: number of elements that are scored before the model learns from them.

    Raises:
        ValueError: an argument is out of range, the model has no weights, or it diverges because the rate is too large.

    >>> from chainrule.models import RecurrentLM
    >>> model, x = RecurrentLM(vocab_size=3, hidden_size=4), torch.tensor([[0, 1, 2] * 100])
    >>> nats = DynamicEvaluator(model, rate=0.01).read(x)
    >>> bool(nats.sum() < -model.log_prob(x))
    True
    """

    def __init__(
        self,
        model: AutoregressiveModel,
        *,
        rate: float = RATE,
        decay: float = _DECAY,
        chunk_length: int = _CHUNK_LENGTH,
    ):
        if not 0 <= rate < float("inf"):
            raise OptionError("rate", f"expected a number >= 0, got {rate}")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay: expected a number in [0, 1], got {decay}")
        if chunk_length < 1:
            raise OptionError("chunk_length", f"expected an integer >= 1, got {chunk_length}")
        self.rate, self.decay, self.chunk_length = rate, decay, chunk_length
        self._model = copy.deepcopy(model).eval()
        self._weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        if not self._weights:
            raise ValueError(f"model: expected weights to learn, got {type(model).__name__}, which has none")
        self._trained = [weight.detach().clone() for weight in self._weights]
        self._squares = [torch.zeros_like(weight) for weight in self._weights]
        self._chunks = 0
        self._state: State = None
        self._previous: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Device of the model, where x must be."""
        return self._weights[0].device

    def read(self, x: Tensor) -> Tensor:
        """Score the next elements (B, T) of endless rows chunk by chunk, and learn from them; return (B, T) nats."""
        nats = []
        if not x.shape[1]:
            return torch.zeros(x.shape, dtype=self._weights[0].dtype, device=x.device)
        for chunk in x.split(self.chunk_length, dim=1):
            if self._previous is None:
                self._state = self._model.initial_state(len(x))
            with torch.enable_grad(), _differentiable(x.device):
                conditionals, state = self._model.unroll(chunk, self._state, self._previous)
                costs = -conditionals.log_prob(chunk)
                self._learn(costs)
            nats.append(costs.detach())
            self._state, self._previous = detach(state), chunk[:, -1]
        return torch.cat(nats, 1)

    def read_rows(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Score whole sequences (B, T) together, and learn from them; return (B, T) nats, 0 in padding."""
        check_lengths(lengths, (len(x), x.shape[1]))
        real = length_mask(lengths, x.shape[1])
        x = fill_padding(x, real)
        with torch.enable_grad(), _differentiable(x.device):
            terms = self._model(x, lengths=lengths).log_prob(x)
            costs = -terms.masked_fill(~real, 0)
            self._learn(costs)
        return costs.detach()

    def _learn(self, costs: Tensor) -> None:
        """Take a step on the scored chunk."""
        if bool(costs.isnan().any()):
            raise OptionError("rate", f"expected a smaller number, got {self.rate:g}", "the model has diverged")
        gradients = torch.autograd.grad(costs.sum() / self.chunk_length, self._weights, materialize_grads=True)
        self._chunks += 1
        rate = self.rate * min(1.0, self._chunks / _WARM_UP)
        with torch.no_grad():
            for weight, trained, squares, gradient in zip(
                self._weights, self._trained, self._squares, gradients, strict=True
            ):
                squares.lerp_(gradient.square(), 1 / self._chunks)
                weight.lerp_(trained, self.decay)
                weight.addcdiv_(gradient, squares.sqrt().add_(_EPSILON), value=-rate)


def _differentiable(device: torch.device) -> AbstractContextManager[object]:
    """Disable cuDNN, whose recurrent kernels have gradients only in training mode, which would enable dropout."""
    return torch.backends.cudnn.flags(enabled=False) if device.type == "cuda" else nullcontext()

r"""Backpropagation through time, written out: the recurrences as functions of their input projections.

Each function takes the projected inputs of all time steps at once and runs one layer in one direction. All arrays are
flat (`chainrule.layers.packing`): R = Σ_t b_t rows, step after step, the b_t rows that are still running first.

With local gradients g_t = ∂L/∂h_t as they arrive from above, and D_t the gradient at the pre-activation,

.. math:: \delta_t = g_t + J_{t+1}^\top \delta_{t+1}, \qquad
          \partial L/\partial W_{hh} = \sum_t (D_t \delta_t)\, h_{t-1}^\top,

so only the products with W_hh run step by step; the sum over t is one matrix product over all R rows, as are the
gradients of W_ih, which the caller's projection takes care of. Under bfloat16 or float16 autocast the matrix products
run in that type, while cell states, gates and their gradients stay in float32.
"""

from chainrule.layers.bptt.gru import gru_reset_after, gru_reset_before
from chainrule.layers.bptt.lstm import lstm
from chainrule.layers.bptt.rnn import rnn

__all__ = ["gru_reset_after", "gru_reset_before", "lstm", "rnn"]

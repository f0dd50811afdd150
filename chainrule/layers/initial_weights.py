"""Fresh weights for a stack of recurrent layers."""

from torch import nn

from chainrule.layers.lstm import LSTM
from chainrule.layers.recurrent import Recurrent


def draw_recurrent_weights(recurrent: Recurrent) -> None:
    """Draw the weights anew: recurrences orthogonal gate by gate, forget gates open (Jozefowicz et al. 2015).

    Weights on the meta device have no numbers to draw, and are left alone.

    >>> from chainrule.layers import LSTM
    >>> layer = LSTM(3, 2)
    >>> draw_recurrent_weights(layer)
    >>> layer.bias_ih_l0.tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    size = recurrent.hidden_size
    for name, parameter in recurrent.named_parameters():
        if parameter.is_meta:
            return
        if name.startswith("weight_hh"):
            for gate in parameter.data.split(size):
                nn.init.orthogonal_(gate)
        elif name.startswith("bias"):
            nn.init.zeros_(parameter)
            if isinstance(recurrent, LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[size : 2 * size])
        else:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)

"""One file per architecture: layers and a head."""

from chainrule.models.recurrent_lm import RecurrentLM

__all__ = ["RecurrentLM"]

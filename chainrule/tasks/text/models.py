"""The models that read a text."""

from typing import Any

from chainrule.tasks.ladder import Ladder
from chainrule.tasks.model import Model

CODED = "sentence-vae"  # the model with a code
_OF_SOFTMAX = ("num_kv_heads", "position", "window", "context_length")  # no effect on other mixers
_PLANNED_SIZES = (
    "hidden_size",
    "num_layers",
    "embedding_size",
    "ngram_order",
    "ngram_dropout",
    "dropout",
    "embedding_dropout",
    "tie_weights",
    "adaptive_softmax",
)


def _recurrent(cell: str, *hidden: str) -> Model:
    home = "chainrule.models.recurrent_lm:RecurrentLM"
    return Model(home, fixed={"cell": cell}, planned=_PLANNED_SIZES, hidden=hidden)


def _transformer(mixer: str, *hidden: str, **defaults: Any) -> Model:
    home = "chainrule.models.transformer_lm:TransformerLM"
    defaults = {"model_size": 256, "num_layers": 6, "ngram_order": 4, **defaults}
    return Model(home, fixed={"attention": mixer}, hidden=hidden, **defaults)


MODELS: dict[str, Model] = {
    "lstm": _recurrent("lstm", "reset_after", "nonlinearity"),
    "gru": _recurrent("gru", "nonlinearity"),
    "rnn": _recurrent("rnn", "reset_after"),
    "transformer": _transformer("softmax", context_length=64),
    "linear-transformer": _transformer("gated-linear", *_OF_SOFTMAX),
    "min-gru": _transformer("min-gru", *_OF_SOFTMAX, "num_heads"),
    CODED: Model("chainrule.models.sentence_vae:SentenceVAE", hidden=("eos",)),
}
LADDERS: dict[str, Ladder] = dict.fromkeys(
    ("transformer", "linear-transformer", "min-gru"),
    Ladder(
        "symbols",
        tuple({"model_size": size, "num_layers": layers} for size, layers in ((192, 5), (128, 4), (96, 3), (64, 2))),
        steps=800,
    ),
)

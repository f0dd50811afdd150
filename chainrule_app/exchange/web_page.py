"""One HTML file with a recurrent network of characters in it: `chainrule export RUN --to web`."""

import json
from base64 import b64decode, b64encode
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chainrule.data import CharVocabulary
from chainrule.models import RecurrentLM
from chainrule.option_error import UserError, option
from chainrule.training import bits
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.text.run import TextRun

WEB = Path(__file__).with_name("web")
_LEVELS = 127  # of 8 bits with a sign, without −128
_DRAWN = 2000  # characters on which the cost of rounding is measured
_SHOWN = 240  # characters that the page begins with


def unfit(run: Task[Any]) -> str:
    """Return the reason why a run has no web page; empty where it has one."""
    if not isinstance(run, TextRun):
        return f"it is a run of the task {run.name}, and the page is for texts"
    if run.data.level != "char":
        return f"it reads {run.data.level}s, and the page reads characters ({option('level', 'char')})"
    model = run.model()
    plain = f"train with {option('plain')}"
    if not isinstance(model, RecurrentLM):
        if run.config.model in ("lstm", "gru", "rnn"):
            return f"it averages a network with others or with counts of n-grams: {plain}"
        return f"the page has rnn, lstm and gru, and this is a {run.config.model}: train with {option('model', 'lstm')}"
    return "" if model.ngrams is None else f"it embeds n-grams: {plain}"


def rounded(model: RecurrentLM) -> tuple[dict[str, dict[str, Any]], RecurrentLM]:
    r"""Round the matrices of a network to 8 bits, and return them for the page with the network that has them.

    .. math:: \hat W_{rc} = s_r \, \mathrm{round}(W_{rc} / s_r), \qquad s_r = \max_c |W_{rc}| / 127

    No weight changes by more than half a step, :math:`s_r / 2`. Biases stay float32.
    """
    copy, tensors = deepcopy(model).float().eval(), {}
    with torch.no_grad():
        for path, weight in copy.named_parameters():
            name = path.removeprefix("recurrent.").removesuffix(".weight")
            values = weight.numpy()
            record: dict[str, Any] = {"shape": list(values.shape), "float32": _coded(values)}
            if values.ndim == 2:
                scales = np.abs(values).max(1) / np.float32(_LEVELS)
                whole = np.rint(values / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
                record |= {"int8": _coded(whole), "float32": _coded(scales)}
                weight.copy_(torch.from_numpy(whole * scales[:, None]))
            tensors[name] = record
    return tensors, copy


def _coded(values: npt.NDArray[Any]) -> str:
    return b64encode(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def weights_of(record: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Return a tensor of the page as the page reads it."""
    numbers = np.frombuffer(b64decode(record["float32"]), "<f4")
    if "int8" not in record:
        return numbers.reshape(record["shape"])
    return np.frombuffer(b64decode(record["int8"]), np.int8).reshape(record["shape"]) * numbers[:, None]


@torch.no_grad()
def rounding_cost(model: RecurrentLM, approximation: RecurrentLM) -> float:
    r"""Return :math:`\mathrm{KL}(p \,\|\, \hat p)` in nats a symbol, along texts that the model draws."""
    text = model.sample(1, length=_DRAWN, generator=torch.Generator().manual_seed(0))
    p, q = (network(text).logits.log_softmax(-1).double() for network in (model, approximation))
    return float((p.exp() * (p - q)).sum(-1).mean())


def network_of(run: Task[Any], *, name: str | None = None, text: str | None = None) -> tuple[dict[str, Any], str]:
    """Return what the page holds of a run, and a line about it.

    Args:
        run: a text run at level char whose model is a recurrent network alone.
        name: the heading; the name of the run's folder by default.
        text: what the page shows first; drawn by the model by default.

    Raises:
        UserError: the run has no such page; the message says why.
    """
    if reason := unfit(run):
        raise UserError(f"{run.path}: this run has no web page: {reason}")
    assert isinstance(run, TextRun)
    model: Any = run.model()
    vocabulary: Any = run.vocabulary
    assert isinstance(vocabulary, CharVocabulary)
    tensors, approximation = rounded(model)
    cost = bits(rounding_cost(model, approximation))
    if text is None:
        drawn = model.sample(1, length=_SHOWN, generator=torch.Generator().manual_seed(0), temperature=0.7)
        text = vocabulary.decode(drawn[0].numpy()).replace("\N{REPLACEMENT CHARACTER}", "").strip()
    held_out = run.held_out()
    measured = "" if held_out is None else f"; {held_out.bits_per_element:.2f} bits a character on held-out text"
    weights = sum(weight.numel() for weight in model.parameters())
    recurrent = model.recurrent
    about = (
        f"{run.config.model.upper()} with {recurrent.num_layers} × {recurrent.hidden_size} units and {weights:,} "
        f"weights, rounded to 8 bits, which costs {cost:.4f} bits a character{measured}. It runs on this page alone: "
        "nothing is sent or fetched."
    )
    network = {
        "name": Path(run.path).resolve().name if name is None else name,
        "about": about,
        "text": text,
        "cell": run.config.model,
        "reset_after": getattr(recurrent, "reset_after", True),
        "nonlinearity": getattr(recurrent, "nonlinearity", "tanh"),
        "hidden_size": recurrent.hidden_size,
        "num_layers": recurrent.num_layers,
        "characters": vocabulary.characters,
        "eos": vocabulary.eos if run.data.reading == "lines" else None,
        "tensors": tensors,
    }
    return network, f"{weights:,} weights of 8 bits; rounding costs {cost:.4f} bits a character"


def page_of(network: dict[str, Any]) -> str:
    """Return the HTML file of a network, which needs no other."""
    environment = Environment(loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined)
    data = json.dumps(network).replace("<", "\\u003c")  # no text ends the element that holds it
    script = (WEB / "living.js").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(network=network, data=Markup(data), script=Markup(script))


def network_in(page: str) -> dict[str, Any]:
    """Return the network that a file of `page_of` holds."""
    start = page.index(">", page.index('id="network"')) + 1
    network: dict[str, Any] = json.loads(page[start : page.index("</script>", start)])
    return network

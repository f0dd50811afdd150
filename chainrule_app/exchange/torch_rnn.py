"""Recurrent language models of torch.nn: an embedding, recurrent layers and a linear layer, told apart by evidence."""

import re
from dataclasses import dataclass
from typing import Any

import torch

from chainrule.option_error import OptionError
from chainrule_app.exchange.checkpoint_file import Checkpoint, Foreign, by_default, matrix_shape
from chainrule_app.exchange.symbols import Symbols

_GATES = {4: "lstm", 3: "gru", 1: "rnn"}
_OF_RNN = ("tanh", "relu")


def recurrent(file: Checkpoint, symbols: Symbols, *, embedding: str | None, activation: str | None) -> Foreign:
    """Read a state dict of nn.LSTM, nn.GRU or nn.RNN between an embedding, or one-hot vectors, and a linear layer."""
    matches = [name for name in file.names() if name.endswith("weight_hh_l0")]
    if len(matches) != 1:
        raise ValueError(f"{file.path}: expected one nn.LSTM, nn.GRU or nn.RNN (weight_hh_l0), got {len(matches)}")
    prefix = matches[0].removesuffix("weight_hh_l0")
    own = [name for name in file.names() if name.startswith(prefix) and "_l" in name.removeprefix(prefix)]
    if other := [name for name in own if name.endswith("_reverse") or "weight_hr" in name]:
        raise ValueError(
            f"{file.path}: {other[0]}: bidirectional layers and projections are no model of what comes next"
        )
    rows, hidden = matrix_shape(file, matches[0])
    if not hidden or rows % hidden or rows // hidden not in _GATES:
        raise ValueError(f"{file.path}: {matches[0]}: expected 4, 3 or 1 times {hidden} rows, got {rows}")
    kind = _GATES[rows // hidden]
    if activation is not None and (kind != "rnn" or activation not in _OF_RNN):
        expected = " or ".join(_OF_RNN) if kind == "rnn" else f"none, because an {kind} has its own"
        raise OptionError("activation", f"expected {expected}, got {activation!r:.40}")
    layers = sum(name.startswith(f"{prefix}weight_hh_l") for name in own)
    inputs = matrix_shape(file, f"{prefix}weight_ih_l0")[1]
    ends = _ends(file, [name for name in file.names() if name not in own], inputs, hidden, embedding)
    vocabulary = file.shape(ends.output)[0]
    symbols.check(vocabulary, file.path)
    head = file.take(ends.output, vocabulary, hidden)
    table = (
        file.take(ends.embedding, vocabulary, inputs)
        if ends.embedding
        else head.new_zeros(vocabulary, vocabulary).fill_diagonal_(1)
    )
    weight, shift = symbols.outputs(head, file.take(ends.bias, vocabulary) if ends.bias else None)
    weights = {"embedding.weight": symbols.inputs(table), "weight_ho": weight, "bias_ho": shift}
    for layer in range(layers):
        shapes = {"weight_ih": (rows, inputs if layer == 0 else hidden), "weight_hh": (rows, hidden)}
        for name, shape in (shapes | {"bias_ih": (rows,), "bias_hh": (rows,)}).items():
            there = f"{prefix}{name}_l{layer}"
            absent = name.startswith("bias") and not file.has(there)
            weights[f"recurrent.{name}_l{layer}"] = head.new_zeros(rows) if absent else file.take(there, *shape)
    file.refuse_others("an embedding, recurrent layers and one linear layer")
    options: dict[str, Any] = {
        "hidden_size": hidden,
        "num_layers": layers,
        "embedding_size": inputs,
        "ngram_order": 1,
        "ngram_dropout": 0.0,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
        "tie_weights": False,
        "adaptive_softmax": False,
        "num_members": 1,
    }
    assumed = [ends.reason]
    if kind == "rnn":
        options["nonlinearity"] = activation or _OF_RNN[0]
        assumed += by_default("activation", activation, _OF_RNN[0], "nn.RNN's default; a state dict does not say it")
    return Foreign(kind, options, weights, tuple(assumed))


@dataclass(frozen=True)
class _Ends:
    """Names of the tensors on both sides of the recurrent layers, empty for one that is absent; how they were told."""

    embedding: str
    output: str
    bias: str
    reason: str


_ONE_HOT = "one-hot"
_OF_EMBEDDINGS = {"emb", "embed", "embedding", "embeddings", "encoder", "encode", "enc", "wte", "lookup", "char", "in"}
_OF_OUTPUTS = {
    "decoder", "decode", "dec", "head", "out", "output", "outputs", "fc", "linear", "lin", "proj", "projection",
    "logits", "classifier", "dense", "softmax", "generator", "ho",
}  # fmt: skip


def _ends(file: Checkpoint, names: list[str], inputs: int, hidden: int, embedding: str | None) -> _Ends:
    """Tell the embedding from the linear layer: by the option, shapes, a bias or names, never by their order."""
    matrices = [name for name in names if len(file.shape(name)) == 2]
    shown = ", ".join(f"{name} {file.shape(name)}" for name in matrices) or "no matrix"
    if not matrices or len(matrices) > 2:
        raise ValueError(
            f"{file.path}: expected an embedding (V, {inputs}) and a linear layer (V, {hidden}) next to the recurrent "
            f"layers, got {shown}"
        )
    if embedding is not None and embedding not in (*matrices, _ONE_HOT):
        raise OptionError("embedding", f"expected {', '.join(matrices)} or {_ONE_HOT}, got {embedding!r:.80}")
    tables = [name for name in matrices if file.shape(name)[1] == inputs and embedding in (None, name)]
    outputs = [name for name in matrices if file.shape(name)[1] == hidden]
    vectors = [name for name in names if len(file.shape(name)) == 1]
    biases = {name: name.removesuffix("weight") + "bias" for name in matrices}
    if len(matrices) == 1:
        return _single(file, matrices[0], vectors, inputs, hidden, embedding)
    choices = [(table, output) for table in tables for output in outputs if table != output]
    if not choices or embedding == _ONE_HOT:
        raise ValueError(
            f"{file.path}: expected an embedding (V, {inputs}) and a linear layer (V, {hidden}), got {shown}"
        )
    if len(choices) == 1:
        how = "as the option says" if embedding is not None else "by their shapes"
    elif torch.equal(
        file.take(matrices[0], *file.shape(matrices[0])), file.take(matrices[1], *file.shape(matrices[1]))
    ):
        choices, how = sorted(choices, key=lambda choice: biases[choice[0]] in vectors), "which are equal"
    elif len(plain := [choice for choice in choices if biases[choice[0]] not in vectors]) == 1:
        choices, how = plain, "because only a linear layer has a bias"
    elif len(named := [choice for choice in choices if _likeness(choice[0]) > _likeness(choice[1])]) == 1:
        choices, how = named, "by their names"
    else:
        raise ValueError(
            f"{file.path}: {' and '.join(matrices)} have one shape, and neither a bias nor a name tells which is the "
            f"embedding: name it with embedding={matrices[0]!r} or {matrices[1]!r}"
        )
    table, output = choices[0]
    bias = biases[output] if biases[output] in vectors else ""
    return _Ends(table, output, bias, f"{table} is the embedding, {output} the linear layer, {how}")


def _single(file: Checkpoint, name: str, vectors: list[str], inputs: int, hidden: int, embedding: str | None) -> _Ends:
    """Return the ends of a model with one matrix: of the linear layer after one-hot vectors, or of both sides."""
    size, width = file.shape(name)
    one_hot = inputs == size and embedding in (None, _ONE_HOT)
    tied = inputs == width and embedding in (None, name)
    if width != hidden or not (one_hot or tied):
        raise ValueError(
            f"{file.path}: expected an embedding (V, {inputs}) and a linear layer (V, {hidden}), or one-hot vectors "
            f"({size}) and a linear layer, got {name} {file.shape(name)}"
        )
    if one_hot and tied:
        raise ValueError(
            f"{file.path}: {name} may belong to a linear layer after one-hot vectors, or be the embedding too: "
            f"choose with embedding={_ONE_HOT!r} or {name!r}"
        )
    bias = next((vector for vector in vectors if vector.endswith("bias") and file.shape(vector) == (size,)), "")
    reason = f"inputs are one-hot vectors, {name} is the linear layer"
    return (
        _Ends("", name, bias, reason)
        if one_hot
        else _Ends(name, name, bias, f"{name} is both the embedding and the linear layer")
    )


def _likeness(name: str) -> int:
    """Return 1 for a usual name of an embedding, -1 for one of a linear layer, 0 for any other."""
    words = set(re.split(r"[._\d]+", name.lower()))
    return bool(words & _OF_EMBEDDINGS) - bool(words & _OF_OUTPUTS)

"""GPT-2 as nanoGPT and `transformers` save it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chainrule.option_error import OptionError
from chainrule_app.exchange.checkpoint_file import Checkpoint, Foreign, by_default, matrix_shape
from chainrule_app.exchange.symbols import Symbols

_EPSILON = torch.nn.LayerNorm(1).eps  # chainrule's layers have torch's default
_ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}


def nanogpt(file: Checkpoint, symbols: Symbols, *, activation: str | None) -> Foreign:
    """Read a checkpoint of nanoGPT: `model_args` and the state dict."""
    arguments = file.about.get("model_args")
    heads = arguments.get("n_head") if isinstance(arguments, dict) else None
    if not isinstance(arguments, dict) or type(heads) is not int:
        raise ValueError(f"{file.path}: expected a checkpoint of nanoGPT with model_args and n_head in it, got none")
    if activation not in (None, *_ACTIVATIONS.values()):
        raise OptionError("activation", f"expected gelu, gelu-tanh or relu, got {activation!r:.40}")
    foreign = _gpt2(file, symbols, heads, activation or "gelu", tied=False)
    sizes = {"n_layer": "num_layers", "n_embd": "model_size", "block_size": "context_length"}
    _check_sizes(file.path, "model_args", arguments, {name: foreign.options[option] for name, option in sizes.items()})
    assumed = by_default("activation", activation, "gelu", "nanoGPT's since 2023, gelu-tanh before; not in the file")
    return replace(foreign, assumed=(*assumed, *foreign.assumed))


def _check_sizes(path: Path, where: str, stated: Mapping[str, Any], actual: dict[str, int]) -> None:
    """Raise ValueError where sizes that a file states are not those of its weights."""
    for name, size in actual.items():
        if type(stated.get(name)) is int and stated[name] != size:
            raise ValueError(
                f"{path}: {where} has {name} {stated[name]}, but the weights have {size}: damaged or mixed up"
            )


def gpt2(file: Checkpoint, symbols: Symbols, config: Mapping[str, Any]) -> Foreign:
    """GPT-2 in `transformers`, described by the content of its config.json."""
    if config.get("model_type") != "gpt2":
        raise ValueError(
            f"config.json: expected model_type gpt2, got {config.get('model_type')!r:.40}: no other is imported"
        )
    activation = config.get("activation_function", "gelu_new")
    epsilon, heads = config.get("layer_norm_epsilon", 1e-5), config.get("n_head", 12)
    untied = config.get("tie_word_embeddings", True) is False
    wrong = [
        f"activation_function {activation!r:.40}" if activation not in _ACTIVATIONS else "",
        f"layer_norm_epsilon {epsilon!r:.40}" if epsilon != _EPSILON else "",
        f"n_head {heads!r:.40}" if type(heads) is not int else "",
        "scale_attn_weights false" if config.get("scale_attn_weights", True) is not True else "",
        "scale_attn_by_inverse_layer_idx" if config.get("scale_attn_by_inverse_layer_idx") else "",
        "add_cross_attention" if config.get("add_cross_attention") else "",
        "pruned_heads" if config.get("pruned_heads") else "",
        "no lm_head.weight, though tie_word_embeddings is false" if untied and not file.has("lm_head.weight") else "",
    ]
    if reason := next(filter(None, wrong), ""):
        raise ValueError(f"config.json: {reason}: chainrule has no such model")
    foreign = _gpt2(file, symbols, heads, _ACTIVATIONS[activation], tied=not untied)
    sizes = {"n_layer": "num_layers", "n_embd": "model_size", "n_positions": "context_length"}
    _check_sizes(file.path, "config.json", config, {name: foreign.options[option] for name, option in sizes.items()})
    return foreign


def _gpt2(file: Checkpoint, symbols: Symbols, heads: int, activation: str, *, tied: bool) -> Foreign:
    prefix = "transformer." if file.has("transformer.wte.weight") else ""
    vocabulary, size = matrix_shape(file, f"{prefix}wte.weight")
    positions, _ = matrix_shape(file, f"{prefix}wpe.weight")
    symbols.check(vocabulary, file.path)
    if heads < 1 or size % heads:
        raise ValueError(f"{file.path}: expected a number of heads that divides {size} features, got {heads}")
    layers = 0
    while file.has(f"{prefix}h.{layers}.ln_1.weight"):
        layers += 1
    first = f"{prefix}h.0"
    turned = file.shape(f"{first}.attn.c_attn.weight") == (size, 3 * size)  # Conv1D: inputs first
    hidden = matrix_shape(file, f"{first}.mlp.c_fc.weight")[1 if turned else 0]
    bias = file.has(f"{first}.attn.c_attn.bias")

    def product(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, Tensor]]:
        weight = file.take(f"{name}.weight", *((inputs, outputs) if turned else (outputs, inputs)))
        yield "weight", weight.t() if turned else weight
        if bias:
            yield "bias", file.take(f"{name}.bias", outputs)

    def norm(name: str, ours: str) -> dict[str, Tensor]:
        weight = file.take(f"{name}.weight", size)
        shift = file.take(f"{name}.bias", size) if file.has(f"{name}.bias") else weight.new_zeros(size)
        return {f"{ours}.weight": weight, f"{ours}.bias": shift}

    table = file.take(f"{prefix}wte.weight", vocabulary, size)
    head = "lm_head.weight" if file.has("lm_head.weight") else f"{prefix}wte.weight"
    if tied and not torch.equal(file.take(head, vocabulary, size), table):
        raise ValueError(
            f"{file.path}: {head} is not the embedding, though tie_word_embeddings is true in config.json: set it to "
            "false if the weights differ on purpose"
        )
    output, shift = symbols.outputs(file.take(head, vocabulary, size), None)
    weights = {
        "embedding.weight": symbols.inputs(table) / size**0.5,
        "stack.positions.weight": file.take(f"{prefix}wpe.weight", positions, size),
        "weight_ho": output,
        "bias_ho": shift,
        **norm(f"{prefix}ln_f", "stack.norm"),
    }
    for layer in range(layers):
        there, here = f"{prefix}h.{layer}", f"stack.blocks.layers.{layer}"
        weights |= norm(f"{there}.ln_1", f"{here}.norm1") | norm(f"{there}.ln_2", f"{here}.norm2")
        weights |= {f"{here}.mixer.in_proj_{part}": x for part, x in product(f"{there}.attn.c_attn", 3 * size, size)}
        weights |= {f"{here}.mixer.out_proj.{part}": x for part, x in product(f"{there}.attn.c_proj", size, size)}
        weights |= {f"{here}.feed_forward.linear1.{part}": x for part, x in product(f"{there}.mlp.c_fc", hidden, size)}
        weights |= {
            f"{here}.feed_forward.linear2.{part}": x for part, x in product(f"{there}.mlp.c_proj", size, hidden)
        }
    file.refuse_others("the parts of GPT-2", ".attn.bias", ".attn.masked_bias")  # masks of older versions
    options = {
        "model_size": size,
        "num_layers": layers,
        "num_heads": heads,
        "position": "learned",
        "context_length": positions,
        "feed_forward_size": hidden,
        "activation": activation,
        "bias": bias,
        "ngram_order": 1,
    }
    return Foreign("transformer", options, weights)

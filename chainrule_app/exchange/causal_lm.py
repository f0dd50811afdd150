"""A `TransformerLM` in a layout of `transformers`: GPT-2, or GPT-NeoX and StableLM where positions are rotary.

Three things of the model have no place there: scores have no bias in those layouts, RMSNorm has none in a layout that
has the rest, and the first symbol follows a start symbol, which is an input only. All three fit exactly in a wider
residual stream x′ of D′ features:

    LayerNorm:  x′ = [x − mean(x), 0],  D′ = D + H    the same norm up to the factor √(D′/D), which γ takes
    RMSNorm:    x′ = [x, −x],           D′ = 2 D      its mean is 0 and its variance the mean square of x

The last norm has γ = 0 and β = 1 at feature D of x′, so the output weights there are a bias; the start symbol has the
number V and the score −10⁴.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.layers import CausalAttention, LearnedPositions
from chainrule.models import CalibratedMixture, Ensemble, TransformerLM
from chainrule.option_error import OptionError

IMPOSSIBLE = -1e4  # the score of a symbol that is never drawn: exp() of it is 0
_ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu"}


@dataclass(frozen=True)
class CausalLM:
    """Content of `config.json` and `model.safetensors` of a folder that `AutoModelForCausalLM` opens."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]


def misfit(model: nn.Module) -> str:
    """Return the reason why a model has no layout of `transformers`; empty where it has one."""
    if isinstance(model, CalibratedMixture | Ensemble):
        return "a mean of several models has no layout there; one Transformer alone has one"
    if not isinstance(model, TransformerLM):
        return f"a {type(model).__name__} has no layout there"
    stack, block = model.stack, model.stack.layers[0]
    if model.ngrams is not None:
        return "n-gram embeddings have no place there"
    if not isinstance(block.mixer, CausalAttention):
        return "its attention is not softmax"
    if not block.norm_first:
        return "its norms follow each sum"
    if block.mixer.position == "alibi":
        return "its positions are alibi"
    if block.feed_forward.activation == "swiglu" and (block.mixer.position != "rotary" or _has_bias(stack)):
        return "swiglu needs rotary positions and no biases there"
    return ""


@torch.no_grad()
def causal_lm(model: TransformerLM) -> CausalLM:
    """Return the config and the weights of an equal model in `transformers`; see `misfit`."""
    reason = misfit(model)
    if reason:
        raise OptionError("model", f"expected one with a layout in transformers, but {reason}")
    mixer, feed_forward = model.stack.layers[0].mixer, model.stack.layers[0].feed_forward
    wide = _Wide(model)
    common: dict[str, Any] = {
        "vocab_size": model.vocab_size + 1,
        "bos_token_id": model.vocab_size,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
        "dtype": str(model.bias_ho.dtype).removeprefix("torch."),
    }
    if mixer.position != "rotary":
        activation = _ACTIVATIONS[feed_forward.activation]
        return CausalLM(common | wide.gpt2_config(activation), wide.gpt2())
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": (wide.head + 0.5) / wide.wide_head}
    common |= {
        "hidden_size": wide.wide,
        "num_hidden_layers": len(wide.blocks),
        "num_attention_heads": wide.heads,
        "intermediate_size": feed_forward.linear2.in_features,
        "max_position_embeddings": mixer.window,
        "layer_norm_eps": wide.epsilon,
        "use_parallel_residual": False,
        "rope_parameters": rope,
    }
    if feed_forward.activation == "swiglu":
        kind: dict[str, Any] = {
            "model_type": "stablelm",
            "architectures": ["StableLmForCausalLM"],
            "hidden_act": "silu",
        }
        kind |= {"num_key_value_heads": mixer.num_kv_heads, "use_qkv_bias": False, "qk_layernorm": False}
        return CausalLM(common | kind, wide.stablelm())
    kind = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "attention_bias": True}
    kind |= {"hidden_act": _ACTIVATIONS[feed_forward.activation]}
    return CausalLM(common | kind, wide.gpt_neox())


class _Wide:
    """The parts of a model with a residual stream of D′ features."""

    def __init__(self, model: TransformerLM):
        self.model, self.blocks = model, model.stack.layers
        mixer = self.blocks[0].mixer
        self.size = mixer.model_size
        self.heads, self.groups, self.head = mixer.num_heads, mixer.num_kv_heads, mixer.head_size
        self.mirrored = isinstance(self.blocks[0].norm1, nn.RMSNorm)
        self.wide = 2 * self.size if self.mirrored else self.size + self.heads
        self.wide_head = self.wide // self.heads
        epsilon = self.blocks[0].norm1.eps
        self.epsilon = epsilon if self.mirrored else epsilon * self.size / self.wide

    def gpt2_config(self, activation: str) -> dict[str, Any]:
        return {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": self.wide,
            "n_layer": len(self.blocks),
            "n_head": self.heads,
            "n_inner": self.blocks[0].feed_forward.linear2.in_features,
            "n_positions": self.positions().shape[0],
            "activation_function": activation,
            "layer_norm_epsilon": self.epsilon,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }

    def gpt2(self) -> dict[str, Tensor]:
        tensors = {
            "transformer.wte.weight": self.embedding(),
            "transformer.wpe.weight": self.written(self.positions()),
            "lm_head.weight": self.output(),
            **self.norm("transformer.ln_f", self.model.stack.norm, last=True),
        }
        for number, block in enumerate(self.blocks):
            name = f"transformer.h.{number}"
            parts = self.attention(block.mixer)
            first, second = block.feed_forward.linear1, block.feed_forward.linear2
            tensors |= self.norm(f"{name}.ln_1", block.norm1) | self.norm(f"{name}.ln_2", block.norm2)
            tensors |= {
                f"{name}.attn.c_attn.weight": torch.cat([weight for weight, _ in parts[:3]]).t(),
                f"{name}.attn.c_attn.bias": torch.cat([bias for _, bias in parts[:3]]),
                f"{name}.attn.c_proj.weight": parts[3][0].t(),
                f"{name}.attn.c_proj.bias": parts[3][1],
                f"{name}.mlp.c_fc.weight": self.read(first.weight).t(),
                f"{name}.mlp.c_fc.bias": _bias(first),
                f"{name}.mlp.c_proj.weight": self.written(second.weight.t()),
                f"{name}.mlp.c_proj.bias": self.written(_bias(second)),
            }
        return _contiguous(tensors)

    def gpt_neox(self) -> dict[str, Tensor]:
        tensors = {
            "gpt_neox.embed_in.weight": self.embedding(),
            "lm_head.weight": self.output(),
            **self.norm("gpt_neox.final_layer_norm", self.model.stack.norm, last=True),
        }
        for number, block in enumerate(self.blocks):
            name = f"gpt_neox.layers.{number}"
            parts = self.attention(block.mixer)
            by_head = [
                torch.cat([part[index].unflatten(0, (self.heads, -1)) for part in parts[:3]], 1).flatten(0, 1)
                for index in range(2)
            ]
            first, second = block.feed_forward.linear1, block.feed_forward.linear2
            tensors |= self.norm(f"{name}.input_layernorm", block.norm1)
            tensors |= self.norm(f"{name}.post_attention_layernorm", block.norm2)
            tensors |= {
                f"{name}.attention.query_key_value.weight": by_head[0],
                f"{name}.attention.query_key_value.bias": by_head[1],
                f"{name}.attention.dense.weight": parts[3][0],
                f"{name}.attention.dense.bias": parts[3][1],
                f"{name}.mlp.dense_h_to_4h.weight": self.read(first.weight),
                f"{name}.mlp.dense_h_to_4h.bias": _bias(first),
                f"{name}.mlp.dense_4h_to_h.weight": self.written(second.weight.t()).t(),
                f"{name}.mlp.dense_4h_to_h.bias": self.written(_bias(second)),
            }
        return _contiguous(tensors)

    def stablelm(self) -> dict[str, Tensor]:
        tensors = {
            "model.embed_tokens.weight": self.embedding(),
            "lm_head.weight": self.output(),
            **self.norm("model.norm", self.model.stack.norm, last=True),
        }
        for number, block in enumerate(self.blocks):
            name = f"model.layers.{number}"
            gate, up = self.read(block.feed_forward.linear1.weight).chunk(2)
            tensors |= self.norm(f"{name}.input_layernorm", block.norm1)
            tensors |= self.norm(f"{name}.post_attention_layernorm", block.norm2)
            parts = self.attention(block.mixer, repeated=False)
            for part, (weight, _) in zip(("q_proj", "k_proj", "v_proj", "o_proj"), parts, strict=True):
                tensors[f"{name}.self_attn.{part}.weight"] = weight
            tensors |= {
                f"{name}.mlp.gate_proj.weight": gate,
                f"{name}.mlp.up_proj.weight": up,
                f"{name}.mlp.down_proj.weight": self.written(block.feed_forward.linear2.weight.t()).t(),
            }
        return _contiguous(tensors)

    def written(self, x: Tensor) -> Tensor:
        """Widen a term that is added to the stream, (.., D) to (.., D′)."""
        if self.mirrored:
            return torch.cat([x, -x], -1)
        return nn.functional.pad(x - x.mean(-1, keepdim=True), (0, self.wide - self.size))

    def read(self, weight: Tensor) -> Tensor:
        """Widen a weight (n, D) that multiplies the output of a norm to (n, D′)."""
        return nn.functional.pad(weight, (0, self.wide - self.size))

    def norm(self, name: str, norm: nn.Module, *, last: bool = False) -> dict[str, Tensor]:
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        assert norm.weight is not None
        scale = 1.0 if self.mirrored else (self.size / self.wide) ** 0.5
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
        shift = self.read(torch.zeros_like(norm.weight) if bias is None else bias)
        if last:
            shift[self.size] = 1.0
        return {f"{name}.weight": self.read(norm.weight * scale), f"{name}.bias": shift}

    def embedding(self) -> Tensor:
        return self.written(self.model.embedding.weight * self.size**0.5)

    def positions(self) -> Tensor:
        """Vectors (positions, D) that are added."""
        window, layer = self.blocks[0].mixer.window, self.model.stack.positions
        if layer is None:
            return self.model.embedding.weight.new_zeros(window, self.size)
        if isinstance(layer, LearnedPositions):
            return layer.weight[:window]
        return layer.vectors(torch.arange(window)).to(self.model.embedding.weight)

    def output(self) -> Tensor:
        """(V + 1, D′), with the bias in column D."""
        model = self.model
        weight = model.embedding.weight[: model.vocab_size] if model.weight_ho is None else model.weight_ho
        weight = self.read(nn.functional.pad(weight, (0, 0, 0, 1)))
        weight[:, self.size] = nn.functional.pad(model.bias_ho, (0, 1), value=IMPOSSIBLE)
        return weight

    def attention(self, mixer: CausalAttention, *, repeated: bool = True) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of queries, keys, values and output; keys and values once for each query if repeated."""
        sizes = [count * self.head for count in (self.heads, self.groups, self.groups)]
        weights = mixer.in_proj_weight.split(sizes)
        bias = mixer.in_proj_bias
        biases = (mixer.in_proj_weight.new_zeros(sum(sizes)) if bias is None else bias).split(sizes)
        parts = []
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            rows = torch.cat([self.read(weight), bias.unsqueeze(1)], 1).unflatten(0, (-1, self.head))
            if mixer.position == "rotary" and index < 2:  # neighbours are turned here, halves there
                rows = torch.cat([rows[:, ::2], rows[:, 1::2]], 1)
            if index and repeated:
                rows = rows.repeat_interleave(self.heads // self.groups, 0)
            rows = rows * (self.wide_head / self.head) ** 0.5 if index == 0 else rows
            rows = nn.functional.pad(rows, (0, 0, 0, self.wide_head - self.head)).flatten(0, 1)
            parts.append((rows[:, :-1], rows[:, -1]))
        out = self.written(mixer.out_proj.weight.t()).unflatten(0, (self.heads, self.head))
        out = nn.functional.pad(out, (0, 0, 0, self.wide_head - self.head)).flatten(0, 1).t()
        return [*parts, (out, self.written(_bias(mixer.out_proj)))]


def _bias(linear: nn.Linear) -> Tensor:
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias


def _has_bias(stack: nn.Module) -> bool:
    return any(linear.bias is not None for linear in stack.modules() if isinstance(linear, nn.Linear))


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}

"""A translator made of attention: a sequence in, another of any length out."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal, Unpack, cast, final

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._executor import Executor
from chainrule._ranges import check_shares, check_sizes
from chainrule.heads import Categorical
from chainrule.kernels._transforms import may_prepare
from chainrule.layers._attention import CrossAttention
from chainrule.layers._causal_attention import CausalAttention
from chainrule.layers._cells import symbol_before, symbols_before, symbols_of
from chainrule.layers._pointwise import dropout
from chainrule.layers._row_encoders import TransformerEncoder
from chainrule.layers._transformer_stack import BlockOptions, ResidualBlock, last_norm, shrink_residuals
from chainrule.models._attentive_decoder import EncoderDecoder
from chainrule.models._conditioned import checked_source
from chainrule.ranges import Layers, Probability, Size
from chainrule.state import Memory, Shared, State, count_rows, expand

DecoderStep = Callable[[Tensor, State, State], tuple[Tensor, State]]


class DecoderBlock(ResidualBlock):
    """Causal attention, attention to a memory, and a feed-forward network, each with a norm and a residual.

    The state belongs to the causal attention; the memory does not change and is a separate argument.
    """

    is_closed = False  # the memory is computed before

    def __init__(
        self,
        model_size: int,
        num_heads: int,
        window: int,
        *,
        num_kv_heads: int | None = None,
        position: str | None = "rotary",
        **options: Unpack[BlockOptions],
    ):
        mixer = CausalAttention(model_size, num_heads, window, num_kv_heads=num_kv_heads, position=position, bias=False)
        cross = CrossAttention(model_size, num_heads, num_kv_heads=num_kv_heads, bias=False)
        super().__init__(mixer, model_size, bias=False, **options)
        self.cross, self.norm3 = cross, copy.deepcopy(self.norm2)

    def forward(self, x: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
        """Read a chunk x (B, T, D) from a state, None at the beginning, with the memory in sight."""
        read, state = self.mixer(self._mixer_input(x), state)
        return self._after(x, read, remembered), state

    def step(self, x_t: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
        """Read one element of each row, (B, D)."""
        y, state = self(x_t.unsqueeze(1), state, remembered)
        return y.squeeze(1), state

    def prepare(self) -> DecoderStep:
        """Return a function equal to `step` in evaluation while the weights do not change."""
        if not may_prepare(self):
            return self.step
        mix = self.mixer.prepare()

        def step(x_t: Tensor, state: State, remembered: State) -> tuple[Tensor, State]:
            read, state = mix(self._mixer_input(x_t), state)
            return self._after(x_t.unsqueeze(1), read.unsqueeze(1), remembered).squeeze(1), state

        return step

    def _after(self, x: Tensor, read: Tensor, remembered: State) -> Tensor:
        """Return the block's result from x (B, T, D) and the mixer's result."""
        x = self._sum(x, read, self.norm1)
        x = self._sum(x, self.cross(self.norm2(x) if self.norm_first else x, remembered), self.norm2)
        return self._sum(x, self.feed_forward(self.norm3(x) if self.norm_first else x), self.norm3)

    def last_products(self) -> list[nn.Linear]:
        """Return the last product of each residual branch; see `shrink_residuals`."""
        return [self.mixer.out_proj, self.cross.out_proj, self.feed_forward.linear2]


@final
class TransformerSeq2Seq(EncoderDecoder):
    r"""A Transformer encoder, and a decoder that attends to it (Vaswani et al. 2017).

    .. math:: p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x), \qquad m = \mathrm{encoder}(x), \qquad
        p(y_t \mid y_{<t}, x) = \mathrm{softmax}(W_{ho}\, \mathrm{decoder}(y_{<t}, m)_t + b_o)

    The context is a dict, as in `Seq2Seq`: "tokens" (B, S), integers in [0, source_vocab_size), and "lengths"
    (B,), the real ones of each row, 0 allowed. What the decoder's blocks need of the memory m is computed once for each
    row, and held once for all forks of it in a search. A block reads the last `context_length` elements of the target.

    Args:
        source_vocab_size: symbols of the source.
        target_vocab_size: V, of the target.
        model_size: D, a multiple of `num_heads`.
        num_layers: blocks of the encoder, and of the decoder.
        num_heads: H, heads of attention.
        num_kv_heads: key and value heads of the decoder; see `chainrule.layers.MultiHeadAttention`.
        position: "rotary" or "alibi".
        context_length: elements of the target that a block of the decoder may read.
        feed_forward_size: units of the feed-forward networks; `None` is 4·D, for "swiglu" 8/3·D. The task takes 2·D
            where it is not given.
        activation: "gelu", "relu" or "swiglu".
        norm: "layer" or "rms".
        norm_first: pre-norm, or post-norm.
        dropout: probability of zeroing in training, of the inputs and of what each branch adds. If not given, the task
            uses 0 to 0.3, more for more passes over the pairs.
        tie_weights: use the target embeddings as output weights.
        label_smoothing: ε of the training objective.

    >>> model = TransformerSeq2Seq(9, 7, model_size=8, num_layers=1, num_heads=2)
    >>> source = {"tokens": torch.tensor([[1, 2, 3], [4, 5, 0]]), "lengths": torch.tensor([3, 2])}
    >>> model(torch.tensor([[3, 2], [6, 0]]), source).logits.shape
    torch.Size([2, 2, 7])
    >>> from chainrule.decoding import beam_search
    >>> [first, second] = beam_search(model.eval(), source, beam_size=3, max_length=5, eos=0)
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        *,
        model_size: Size = 256,
        num_layers: Layers = 3,
        num_heads: Layers = 4,
        num_kv_heads: Layers | None = None,
        position: Literal["rotary", "alibi"] = "rotary",
        context_length: Size = 256,
        feed_forward_size: Size | None = None,
        activation: Literal["gelu", "relu", "swiglu"] = "gelu",
        norm: Literal["layer", "rms"] = "layer",
        norm_first: bool = True,
        dropout: Probability = 0.0,
        tie_weights: bool = True,
        label_smoothing: Probability = 0.1,
    ):
        super().__init__()
        check_sizes(source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size)
        check_sizes(context_length=context_length)
        check_shares(label_smoothing=label_smoothing)
        self.source_vocab_size, self.vocab_size = source_vocab_size, target_vocab_size
        self.dropout, self.label_smoothing = dropout, label_smoothing
        options: BlockOptions = {
            "feed_forward_size": feed_forward_size,
            "activation": activation,
            "norm": norm,
            "norm_first": norm_first,
            "dropout": dropout,
        }
        self.encoder = TransformerEncoder(model_size, model_size, num_layers, num_heads, position=position, **options)
        blocks = [
            DecoderBlock(model_size, num_heads, context_length, num_kv_heads=num_kv_heads, position=position, **options)
            for _ in range(num_layers)
        ]
        self.blocks, self.norm = nn.ModuleList(blocks), last_norm(blocks[0])
        self.source_embedding = nn.Embedding(source_vocab_size, model_size)
        self.embedding = nn.Embedding(target_vocab_size + 1, model_size)  # the start symbol is the last
        self.weight_ho = None if tie_weights else nn.Parameter(torch.empty(target_vocab_size, model_size))
        self.bias_ho = nn.Parameter(torch.zeros(target_vocab_size))
        for weight in (self.source_embedding.weight, self.embedding.weight, self.weight_ho):
            if weight is not None and not weight.is_meta:  # rows of length 1 keep the first scores small
                nn.init.normal_(weight, std=model_size**-0.5)
        shrink_residuals(self._blocks)

    @property
    def _blocks(self) -> list[DecoderBlock]:
        return cast(list[DecoderBlock], list(self.blocks))

    @property
    def reach(self) -> int:
        """The elements that the windows of all blocks reach."""
        return 1 + sum(block.mixer.window - 1 for block in self._blocks)

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        memory, lengths = self._encoded(context)
        if len(memory) not in (1, batch_size):
            raise ValueError(f"context: expected {batch_size} rows, or one for all, got {len(memory)}")
        remembered = Memory(blocks=[block.cross.remember(memory, lengths) for block in self._blocks])
        return {
            "blocks": tuple(block.mixer.initial_state(batch_size) for block in self._blocks),
            "memory": expand(remembered, batch_size),
        }

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        if x_prev is not None:
            x_prev = symbol_before(x_prev, self.vocab_size)
        h, state = self._advance([partial(DecoderBlock.step, block) for block in self._blocks], x_prev, state)
        return Categorical(self._scores(h)), state

    def prepare(self) -> Executor:
        if self.training or not may_prepare(*self._blocks):
            return Executor(self)
        with torch.no_grad():
            steps = [block.prepare() for block in self._blocks]

        def step(x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
            h, state = self._advance(steps, x_prev, state)
            return Categorical(self._scores(h)), state

        return Executor(self, step)

    @property
    def has_attention(self) -> bool:
        """True: as of `Seq2Seq`."""
        return True

    def attended(self, x: Tensor, context: Context) -> Tensor:
        """α: how much each element of x, when it was predicted, attended to each position; (B, T, S), 0 in padding.

        The mean over the heads of the last block but one, whose attention follows the words of a translation closest
        (Garg et al. 2019); of a single block, where there is no other.
        """
        return self.attended_by_head(x, context)[:, -2:].mean(2)[:, 0]

    def attended_by_head(self, x: Tensor, context: Context) -> Tensor:
        """α of every block and head: how much each element of x attended to each position when it was predicted.

        Returns:
            (B, L, H, T, S), 0 in padding.

        >>> model = TransformerSeq2Seq(5, 4, model_size=8, num_layers=1, num_heads=2).eval()
        >>> context = {"tokens": torch.tensor([[1, 2, 0]]), "lengths": torch.tensor([2])}
        >>> model.attended_by_head(torch.tensor([[3, 0]]), context).shape
        torch.Size([1, 1, 2, 2, 3])
        """
        state, weights = self.initial_state(len(x), context), []

        def watch(block: nn.Module, inputs: tuple[Tensor, State]) -> None:
            assert isinstance(block, type(self._blocks[0].cross))
            weights.append(block.attended(*inputs))

        hooks = [block.cross.register_forward_pre_hook(watch) for block in self._blocks]
        try:
            self._features(x, state, None)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(weights, 1)

    def _encoded(self, context: Context) -> tuple[Tensor, Tensor]:
        """Return the memory (B, S, D) and the lengths of its rows."""
        tokens, lengths = checked_source(context, self.source_vocab_size)
        features = self.source_embedding(tokens) * self.source_embedding.embedding_dim**0.5
        return self.encoder(features, lengths)[0], lengths

    def _features(self, x: Tensor, state: State, x_prev: Tensor | None) -> tuple[Tensor, State]:
        h, after = self._embedded(symbols_before(x, x_prev, self.vocab_size)), []
        for block, before, memory in zip(self._blocks, state["blocks"], _memories(state), strict=True):
            h, following = block(h, before, memory)
            after.append(following)
        return self.norm(h), {**state, "blocks": tuple(after)}

    def _advance(self, steps: list[DecoderStep], x_prev: Tensor | None, state: State) -> tuple[Tensor, State]:
        if x_prev is None:
            x_prev = self._start(count_rows(state["blocks"]))
        h, after = self._embedded(symbols_of(x_prev)), []
        for step, before, memory in zip(steps, state["blocks"], _memories(state), strict=True):
            h, following = step(h, before, memory)
            after.append(following)
        return self.norm(h), {**state, "blocks": tuple(after)}

    def _embedded(self, symbols: Tensor) -> Tensor:
        features = self.embedding(symbols) * self.embedding.embedding_dim**0.5
        return dropout(features, self.dropout, self.training)


def _memories(state: State) -> list[State]:
    """Memory of each block, shared where the state is."""
    memory = state["memory"]
    if isinstance(memory, Shared):
        return [Shared(memory.rows, values) for values in memory.values["blocks"]]
    blocks: list[State] = memory["blocks"]
    return blocks

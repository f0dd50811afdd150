"""Hugging Face's causal language models, built from a configuration, pass; mutants of one are named."""

from functools import wraps
from inspect import signature

import pytest
import torch
from torch.nn import functional as F

from chainrule import from_logits
from chainrule.decoding import beam_search
from chainrule.testing import check
from chainrule.testing._contract import CHECKS
from chainrule.testing._stepping import check_step_equals_forward

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

X = torch.randint(7, (3, 8), generator=torch.Generator().manual_seed(0))
SYMBOLS = {"vocab_size": 7, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
LLAMA = SYMBOLS | {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


def gpt2(kind=transformers.GPT2LMHeadModel):
    torch.manual_seed(0)
    return kind(transformers.GPT2Config(n_positions=64, n_embd=16, n_layer=2, n_head=2, **SYMBOLS))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))


def mistral():
    """Its cache keeps the last three symbols, and counts those that it has dropped."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(sliding_window=4, head_dim=8, **LLAMA))


@pytest.mark.parametrize("make", [gpt2, llama, mistral])
def test_a_sound_model_passes_with_its_cache_and_padding_on_the_left(make):
    torch.manual_seed(0)
    report = check(make(), X)
    assert report.ok, report
    results = {result.name: result for result in report.results}
    assert results["step_equals_forward"].detail.startswith("through `")
    assert results["left_padding"].applies


def test_an_adapted_model_scores_and_searches():
    module = gpt2().eval()
    model = from_logits(module)
    with torch.no_grad():
        loss = module(X[:1], labels=X[:1]).loss
    expected = -loss * (X.shape[1] - 1) - torch.tensor(7.0).log()  # whose first symbol is uniform
    torch.testing.assert_close(model.log_prob(X[:1])[0], expected)
    cached, recomputed = (
        beam_search(from_logits(module, cache=cache), beam_size=3, max_length=6, eos=1, prefix=X[0, :2])
        for cache in (True, False)
    )
    assert [x.tolist() for x in cached[0].sequences] == [x.tolist() for x in recomputed[0].sequences]


class NoAttentionMask(transformers.GPT2LMHeadModel):
    """Drops the positions too: from positions that begin again, the library would infer the mask."""

    @wraps(transformers.GPT2LMHeadModel.forward)
    def forward(self, input_ids, attention_mask=None, position_ids=None, **arguments):
        return super().forward(input_ids, **arguments)


class SelfShifted(transformers.GPT2LMHeadModel):
    @wraps(transformers.GPT2LMHeadModel.forward)
    def forward(self, input_ids, **arguments):
        return super().forward(F.pad(input_ids[:, :-1], (1, 0)), use_cache=False)


class Leaking(transformers.GPT2LMHeadModel):
    @wraps(transformers.GPT2LMHeadModel.forward)
    def forward(self, input_ids, **arguments):
        output = super().forward(input_ids, **arguments)
        output.logits = output.logits + output.logits.roll(-1, 1)
        return output


CACHE = next(name for name in ("past_key_values", "cache") if name in signature(gpt2().forward).parameters)


class LatePositions(transformers.GPT2LMHeadModel):
    @wraps(transformers.GPT2LMHeadModel.forward)
    def forward(self, input_ids, **arguments):
        if arguments.get(CACHE) is not None:
            seen = arguments[CACHE].get_seq_length() + 1
            arguments["position_ids"] = torch.arange(seen, seen + input_ids.shape[1]).expand_as(input_ids)
        return super().forward(input_ids, **arguments)


class CroppedCache(transformers.GPT2LMHeadModel):
    @wraps(transformers.GPT2LMHeadModel.forward)
    def forward(self, input_ids, **arguments):
        output = super().forward(input_ids, **arguments)
        if output.get(CACHE) is not None and (excess := output[CACHE].get_seq_length() - 3) > 0:
            output[CACHE].crop(-excess)
        return output


@pytest.mark.parametrize(
    ("mutant", "options", "name"),
    [
        (NoAttentionMask, {}, "left_padding"),
        (SelfShifted, {"shifted": True}, "shift"),
        (Leaking, {}, "causality"),
        (LatePositions, {}, "step_equals_forward"),
        (CroppedCache, {}, "step_equals_forward"),
    ],
)
def test_a_mutant_is_named(monkeypatch, mutant, options, name):
    if name != "left_padding":  # no check after these is of interest
        monkeypatch.setattr("chainrule.testing._contract.CHECKS", CHECKS[: CHECKS.index(check_step_equals_forward) + 1])
    report = check(gpt2(mutant), X, **options)
    assert report.failures[0].name == name, report

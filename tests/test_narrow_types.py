"""A whole model in bfloat16 or float16: every objective, bound and sample that it has in float32."""

import pytest
import torch
from small_models import EVERY, LATENT, SEQUENCES

from chainrule.decoding import beam_search
from chainrule.models import Autoencoder
from chainrule.state import map_state

NARROW = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


def draw():
    return torch.Generator().manual_seed(0)


def likelihoods(model, x, context=None, lengths=None):
    """All numbers in nats that a model gives each row."""
    if hasattr(model, "elbo"):
        bounds = (model.elbo(x, 2, draw(), lengths=lengths), model.importance_bound(x, 3, draw(), lengths=lengths))
        return torch.stack([*bounds, model.kl(x, draw(), lengths=lengths)])
    return torch.stack([model.log_prob(x, context, lengths), model.held_out_objective(x, context, lengths)])


@NARROW
@pytest.mark.parametrize("name", EVERY)
def test_likelihoods_and_bounds_are_near_those_of_float32(name, dtype):
    model, arguments = EVERY[name]()
    expected = likelihoods(model.eval(), *arguments)
    found = likelihoods(model.to(dtype), *arguments)
    # Two to three digits of a bfloat16 are right.
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05, check_dtype=False)


@NARROW
@pytest.mark.parametrize("name", EVERY)
def test_training_gives_finite_gradients(name, dtype):
    model, (x, *others) = EVERY[name]()
    context, lengths = (*others, None, None)[:2]
    objective = model.to(dtype).train().training_objective(x, context, lengths)
    assert objective.shape == (len(x),)
    if objective.requires_grad:
        objective.sum().backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert all(gradient.dtype == dtype and gradient.isfinite().all() for gradient in gradients)


@NARROW
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_sampled_and_read_again(name, dtype):
    model, (x, *others) = SEQUENCES[name]()
    context, sequence = (*others, None)[0], model.eval().to_sequence(x)
    model.to(dtype)
    drawn = model.sample(len(x), context, prefix=sequence[:, :1], length=sequence.shape[1], generator=draw())
    assert drawn.shape == x.shape
    assert model.log_prob(drawn, context).isfinite().all()
    found = model.unroll(sequence, model.initial_state(len(x), context))[0].log_prob(sequence)
    assert found.isfinite().all()
    if name in ("RecurrentLM", "Seq2Seq", "TransformerLM", "TransformerSeq2Seq", "WaveNet"):
        first = map_state(lambda leaf: leaf[:1], context)
        [best] = beam_search(model, first, beam_size=2, max_length=3, eos=None)
        assert len(best.sequences[0]) == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", LATENT)
def test_codes_of_any_type_are_decoded(name, dtype):
    model, (x, *others) = LATENT[name]()
    model.to(dtype).eval()
    assert model.sample(2, draw()).shape == (2, *x.shape[1:])
    codes = model.codes(x, lengths=(*others, None, None)[1])
    for z in (codes, codes.float(), codes.double(), codes.bfloat16()):
        assert model.from_codes(z, generator=draw()).shape == x.shape


@NARROW
def test_an_autoencoder_and_an_ensemble_of_orders_work(dtype):
    autoencoder, x = Autoencoder((1, 4, 4), 3, 2, hidden_size=8).to(dtype), torch.randint(2, (2, 1, 4, 4))
    assert autoencoder.from_codes(autoencoder.codes(x).float()).shape == x.shape
    autoencoder.training_objective(x).sum().backward()

import pytest
import torch
from latent_models import Coins, LinearGaussian

from chainrule.diagnostics import active_units
from chainrule.training import Objective


def objective_of(model, x, seed=0, **given):
    torch.manual_seed(seed)
    return model.training_objective(x, **given)


def twin(model, **settings):
    other = type(model)(**settings)
    other.load_state_dict(model.state_dict())
    return other


def gradients(model, x, count):
    """(count, numbers) gradients of the encoder's parameters."""
    found = []
    for _ in range(count):
        weights = [model.read, model.shift, model.log_scale]
        total = model.training_objective(x).sum()
        found.append(torch.cat([part.flatten() for part in torch.autograd.grad(total, weights)]))
    return torch.stack(found)


def test_the_plain_objective_is_the_elbo():
    model, x = Coins(), torch.randint(2, (5, 4))
    torch.manual_seed(0)
    torch.testing.assert_close(objective_of(model, x), (torch.manual_seed(0), model.elbo(x))[1])


def test_the_divergence_is_weighted_by_beta_and_warmed_up():
    plain, x = Coins(), torch.randint(2, (5, 4))
    elbo, kl = objective_of(plain, x), plain.kl(x)
    torch.testing.assert_close(objective_of(twin(plain, beta=4.0), x), elbo - 3 * kl)
    warm = twin(plain, kl_warmup=0.5)
    for progress, weight in ((0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (1.0, 1.0)):
        torch.testing.assert_close(objective_of(warm, x, progress=progress), elbo + (1 - weight) * kl)


def test_free_bits_cost_nothing_and_pull_nothing():
    plain, x = Coins(), torch.randint(2, (5, 4))
    generous = twin(plain, free_bits=100.0)
    found = objective_of(generous, x)
    torch.testing.assert_close(found, objective_of(plain, x) + plain.kl(x) - 200)
    free = torch.autograd.grad(found.sum(), generous.encoder.weight)[0]
    torch.testing.assert_close(
        free, torch.autograd.grad((objective_of(plain, x) + plain.kl(x)).sum(), plain.encoder.weight)[0]
    )


def test_many_draws_train_the_importance_weighted_bound():
    plain, x = LinearGaussian(), torch.randn(2, 4)
    many = twin(plain, importance_samples=20)
    found = torch.stack([objective_of(many, x, seed) for seed in range(300)]).mean(0)
    expected = torch.stack(
        [plain.importance_bound(x, 20, torch.Generator().manual_seed(seed)) for seed in range(300)]
    ).mean(0)
    torch.testing.assert_close(found.double(), expected, atol=0.05, rtol=0)  # 5 standard errors of 0.15 / 17
    assert bool((expected > plain.elbo(x, 2000) + 0.02).all())


def test_the_doubly_reparameterised_gradient_has_the_same_mean_and_less_variance():
    plain, x = LinearGaussian(), torch.randn(3, 4)
    settings = {"importance_samples": 30}
    usual = gradients(twin(plain, **settings), x, 400)
    doubly = gradients(twin(plain, **settings, doubly_reparameterised=True), x, 400)
    error = ((usual.var(0) + doubly.var(0)) / 400).sqrt()
    assert bool(((usual.mean(0) - doubly.mean(0)).abs() < 5 * error).all())
    assert float(doubly.var(0).sum()) < 0.5 * float(usual.var(0).sum())


def test_the_decoder_has_the_usual_gradient_of_the_importance_weighted_bound():
    plain, x = LinearGaussian(importance_samples=5), torch.randn(3, 4)
    doubly = twin(plain, importance_samples=5, doubly_reparameterised=True)
    for name in ("weight", "bias"):
        usual, ours = (
            torch.autograd.grad(objective_of(model, x).sum(), getattr(model, name))[0] for model in (plain, doubly)
        )
        torch.testing.assert_close(usual, ours)


def test_training_reads_the_objective_and_held_out_rows_the_elbo():
    model, x = Coins(kl_warmup=0.5), torch.randint(2, (5, 4))
    torch.manual_seed(0)
    nats, _ = Objective(model)(x, whole=True, progress=0.0)
    torch.testing.assert_close(nats, -(objective_of(model, x, progress=0.0)).sum())
    torch.manual_seed(0)
    nats, _ = Objective(model.eval())(x, whole=True, progress=0.0)
    torch.testing.assert_close(nats, -objective_of(model, x).sum())


def test_chunks_bound_what_is_decoded_at_once():
    model, x, seen = Coins(), torch.randint(2, (5, 4)), []
    decode = model.decode
    model.decode = lambda z: seen.append(len(z)) or decode(z)
    bound = model.importance_bound(x, 23, chunk=7)
    assert bound.shape == (5,)
    assert max(seen) <= 7
    assert sum(seen) == 5 * 23


def test_a_collapsed_posterior_is_seen_and_its_remedies_named():
    model, x = Coins(beta=4.0), torch.randint(2, (200, 4))
    assert not active_units(model, x).collapsed
    torch.nn.init.zeros_(model.encoder.weight)
    use = active_units(model, x)
    assert use.collapsed
    assert use.count == 0
    assert use.remedies[0] == "beta is 4: lower it to 1"
    assert any("kl_warmup is 0" in remedy for remedy in use.remedies)
    assert not any("decoder sees" in remedy for remedy in use.remedies)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_size": 0}, "latent_size: expected an integer >= 1, got 0"),
        ({"importance_samples": 0}, "importance_samples: expected an integer >= 1, got 0"),
        ({"beta": -1.0}, "beta: expected a finite number >= 0"),
        ({"kl_warmup": 2.0}, "kl_warmup: expected a part of the run"),
        ({"free_bits": 0.1, "importance_samples": 5}, "free_bits: needs the KL divergence per dimension"),
    ],
)
def test_settings_that_make_no_objective_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LinearGaussian(**settings)


def test_bounds_without_draws_are_refused():
    model, x = Coins(), torch.randint(2, (2, 4))
    with pytest.raises(ValueError, match="samples: expected at least 1 draw, got 0"):
        model.importance_bound(x, 0)
    with pytest.raises(ValueError, match="samples: expected at least 1 draw, got 0"):
        model.elbo(x, 0)
    with pytest.raises(ValueError, match="chunk: expected at least 1"):
        model.importance_bound(x, 1, chunk=0)
    with pytest.raises(ValueError, match="n: expected at least 1, got 0"):
        model.sample(0)

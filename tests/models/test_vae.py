import pytest
import torch

from chainrule.models import VAE, Autoencoder, PixelVAE
from chainrule.testing._dependence import check_causality, check_full_context
from chainrule.testing._stepping import check_chunk_invariance, check_step_equals_forward
from chainrule.training import Objective


@pytest.mark.parametrize(("head", "network"), [("bernoulli", "dense"), ("categorical", "convolutional")])
def test_networks_and_heads_of_a_vae_keep_the_contract(keeps_contract, head, network):
    model = VAE((1, 3, 2), 2, 2, network=network, head=head, hidden_size=6, channels=3)
    keeps_contract(model, torch.randint(2, (3, 1, 3, 2)))


def test_the_decoder_of_a_pixel_vae_keeps_the_contract_of_sequences():
    decoder = PixelVAE((2, 3, 3), 2, 2, hidden_size=4, channels=3, decoder_channels=6, decoder_layers=1).decoder
    arguments = torch.randint(2, (2, 2, 3, 3)), torch.randn(2, 2)
    for check in (check_step_equals_forward, check_causality, check_chunk_invariance, check_full_context):
        result = check(decoder, *arguments)
        assert result.ok, result
    with pytest.raises(ValueError, match=r"context: expected vectors \(2, 2\), got None"):
        decoder(arguments[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VAE((1, 2, 2), 4, head="bernoulli"), "head: bernoulli needs levels=2, got 4"),
        (lambda: VAE((2, 2), 2), r"image_shape: expected \(C, H, W\)"),
        (lambda: VAE((1, 2, 2), 1), "levels: expected at least 2"),
        (lambda: VAE((1, 2, 2), 2, hidden_size=0), "hidden_size: expected an integer >= 1, got 0"),
        (lambda: PixelVAE((1, 2, 2), 2, decoder_channels=5), "channels: expected an even number"),
    ],
)
def test_arguments_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_argument_that_no_objective_has_is_refused():
    with pytest.raises(TypeError, match="kl_warm"):
        VAE((1, 3, 2), kl_warm=True)


def test_a_linear_autoencoder_finds_the_principal_components():
    x = (torch.randn(200, 2) @ torch.randn(2, 12) * 20 + torch.randn(200, 12) * 6 + 128).round().clamp(0, 255).long()
    x = x.view(-1, 1, 3, 4)
    model = Autoencoder((1, 3, 4), 2, network="linear").double()
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = -model.training_objective(x).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    flat = x.flatten(1).double() / 255
    least = torch.linalg.svdvals(flat - flat.mean(0))[2:].square().sum() / len(x)
    torch.testing.assert_close(model.squared_error(x).mean(), least, rtol=0.01, atol=0)


def test_noise_and_sparsity_are_of_training_alone():
    x = torch.randint(256, (6, 1, 4, 5))
    model = Autoencoder((1, 4, 5), 30, hidden_size=8, noise=0.5, sparsity=2.0)
    plain = Autoencoder((1, 4, 5), 30, hidden_size=8)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model.held_out_objective(x), plain.training_objective(x))
    sparse = Autoencoder((1, 4, 5), 30, hidden_size=8, sparsity=2.0)
    sparse.load_state_dict(model.state_dict())
    torch.testing.assert_close(
        sparse.training_objective(x), plain.training_objective(x) - 2 * model.codes(x).abs().sum(1)
    )
    assert not torch.equal(model.training_objective(x), sparse.training_objective(x))
    nats, _ = Objective(model.eval())(x, whole=True)
    torch.testing.assert_close(nats, 0.5 * model.squared_error(x).sum())


@pytest.mark.parametrize("network", ["dense", "convolutional", "linear"])
def test_codes_become_images_in_levels(network):
    model = Autoencoder((3, 5, 6), 4, levels=16, network=network, hidden_size=8, channels=4)
    x = torch.randint(16, (2, 3, 5, 6))
    image = model.from_codes(100 * model.codes(x)).detach()
    assert image.shape == x.shape
    assert 0 <= float(image.min()) <= float(image.max()) <= 15


def test_a_size_of_nothing_and_another_image_are_refused():
    with pytest.raises(ValueError, match="latent_size: expected an integer >= 1, got 0"):
        Autoencoder((1, 4, 4), 0)
    with pytest.raises(ValueError, match=r"x: expected images of shape \(B, 1, 4, 4\), got \(2, 1, 5, 4\)"):
        Autoencoder((1, 4, 4)).codes(torch.zeros(2, 1, 5, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="quantise the images first"):
        Autoencoder((1, 4, 4)).codes(torch.zeros(2, 1, 4, 4))

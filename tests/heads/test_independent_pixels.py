import pytest
import torch

from chainrule.heads import IndependentPixels


@pytest.mark.parametrize(
    ("kind", "channels", "levels"), [("bernoulli", 1, 2), ("categorical", 2, 3), ("mixture", 1, 4), ("mixture", 3, 4)]
)
def test_an_image_of_one_pixel_adds_up_to_one_and_its_mean_is_that_of_draws(kind, channels, levels):
    count = IndependentPixels.num_parameters(kind, channels, levels, 2)
    image = IndependentPixels.from_parameters(kind, torch.randn(1, count, 1, 1).double(), channels, levels)
    assert image.batch_shape == (1,)
    assert image.event_shape == (channels, 1, 1)
    values = torch.cartesian_prod(*[torch.arange(levels)] * channels).view(-1, channels, 1, 1)
    probabilities = image.log_prob(values).exp()
    torch.testing.assert_close(probabilities.sum(), torch.tensor(1.0).double())
    first = (probabilities.view(-1, 1, 1, 1) * values).sum(0)[:1]
    torch.testing.assert_close(image.mean[0, :1], first)  # later channels of a mixture depend on the first
    drawn = image.sample((4000,), generator=torch.Generator().manual_seed(0))[:, 0]
    assert drawn.dtype == torch.long
    torch.testing.assert_close(drawn[:, :1].double().mean(0), first, atol=0.1, rtol=0)  # 5 standard errors of 1.2 / 63


def test_log_prob_is_the_sum_over_pixels_and_channels():
    image = IndependentPixels.from_parameters("categorical", torch.randn(2, 2 * 3, 4, 5), 2, 3)
    x = torch.randint(3, (2, 2, 4, 5))
    torch.testing.assert_close(image.log_prob(x), image.pixels.log_prob(x).flatten(1).sum(1))

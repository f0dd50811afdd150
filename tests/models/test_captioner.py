import pytest
import torch

from chainrule.decoding import beam_search, greedy
from chainrule.layers import ImageEncoder
from chainrule.models import Captioner
from chainrule.testing import check_full_context, check_model

IMAGES = torch.randint(256, (3, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
X = torch.randint(5, (3, 4), generator=torch.Generator().manual_seed(1))


class Blind(Captioner):
    def encode(self, context):
        return super().encode(torch.zeros_like(context))


def captioner(kind=Captioner, **options):
    torch.manual_seed(0)
    model = kind(5, ImageEncoder((8, 8)), embedding_size=6, hidden_size=7, **{"dropout": 0.0} | options)
    for name, weight in model.named_parameters():
        if "norm.weight" in name:
            torch.nn.init.ones_(weight)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"attention": "multiplicative", "input_feeding": True, "cell": "gru"}, {"attention": None, "cell": "rnn"}],
)
def test_the_contract_holds(options):
    report = check_model(captioner(**options), X, IMAGES, lengths=torch.tensor([4, 2, 3]))
    assert report.ok, report


def test_the_check_notices_a_captioner_that_does_not_look():
    result = check_full_context(captioner(kind=Blind), X, IMAGES)
    assert not result.ok
    assert "the context never influences" in result.detail


def test_captions_are_searched_for_each_image_alone():
    model = captioner()
    together = beam_search(model, IMAGES, beam_size=3, max_length=6, eos=0)
    for image, found in zip(IMAGES.split(1), together, strict=True):
        (alone,) = beam_search(model, image, beam_size=3, max_length=6, eos=0)
        assert [row.tolist() for row in alone.sequences] == [row.tolist() for row in found.sequences]
    assert len(greedy(model, IMAGES, max_length=4, eos=0)) == 3


def test_where_it_looks_adds_up_to_one():
    weights = captioner().attended(X, IMAGES)
    assert weights.shape == (3, 4, 16)
    torch.testing.assert_close(weights.sum(2), torch.ones(3, 4))


@pytest.mark.parametrize("context", [None, torch.zeros(3, 1, 8, 8), {"images": IMAGES}])
def test_what_is_no_image_is_refused(context):
    with pytest.raises(ValueError, match=r"images \(B, 3, H, W\)"):
        captioner()(X, context)

"""Images drawn by compiled loops: the same elements, noise and errors as by the plain steps."""

import itertools

import pytest
import torch
from scipy.stats import chisquare

from chainrule.heads import DiscretizedLogisticMixture
from chainrule.kernels._raster_program import Program
from chainrule.models import GatedPixelCNN, PixelCNN, PixelCNNPP
from chainrule.models import _raster_model as raster_model

pytest.importorskip("numba")
LABELS = torch.tensor([0, 2, 1, 1, 0])
SHAPES = {"1 colour": ((1, 6, 5), 2), "2 colours": ((2, 4, 9), 5), "3 colours": ((3, 5, 4), 6)}
KINDS = {
    "gated": lambda *shape, **o: GatedPixelCNN(*shape, channels=10, layers=2, **o),
    "gated, other kernels": lambda *shape, **o: GatedPixelCNN(*shape, 7, 1, 3, 5, **o),
    "masked": lambda *shape, **o: PixelCNN(*shape, channels=12, layers=2, kernel_size=5, **o),
    "masked, other kernels": lambda *shape, **o: PixelCNN(*shape, 8, 1, 3, 5, **o),
    "mixture": lambda *shape, **o: PixelCNNPP(*shape, channels=7, layers=1, components=3, **o),
    "mixture, 2 resolutions": lambda *shape, **o: PixelCNNPP(*shape, channels=6, resolutions=2, components=3, **o),
}


def network(kind, shape="2 colours", dtype=torch.float64, **options):
    """A model whose conditionals depend strongly on all it reads."""
    torch.manual_seed(0)
    model = KINDS[kind](*SHAPES[shape], **options).to(dtype).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=max(weight[0].numel(), 1) ** -0.5 if weight.dim() > 1 else 0.5)
    return model


def drawn(model, n, monkeypatch, compiled=True, long=1, **options):
    """A sample, the state of the generator after it, and how many programs drew."""
    started, start = [], Program.start
    with monkeypatch.context() as patch:
        patch.setattr(raster_model, "first_compiled", lambda saved, count: 0 if count >= long else None)
        patch.setattr(Program, "start", lambda *a: started.append(1) or start(*a))
        if not compiled:
            patch.setattr(raster_model, "compiled_loops", lambda like: None)
        generator = torch.Generator().manual_seed(3)
        x = model.sample(n, generator=generator, **options)
    return x.tolist(), generator.get_state().tolist(), len(started)


def is_compiled(model, monkeypatch, **options):
    return drawn(model, 1, monkeypatch, **options)[2] == 1


def assert_same_draws(model, n, monkeypatch, **options):
    *plain, none = drawn(model, n, monkeypatch, compiled=False, **options)
    *fast, one = drawn(model, n, monkeypatch, **options)
    assert (none, one) == (0, 1)
    assert fast == plain


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_of_the_steps(kind, shape, monkeypatch):
    assert_same_draws(network(kind, shape), 5, monkeypatch)  # four images together, and one


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_prefixes_are_obeyed(kind, monkeypatch):
    model = network(kind, num_classes=3)
    x = torch.randint(5, (5, 72))
    assert_same_draws(model, 5, monkeypatch, context=LABELS)
    for known in (1, 18, 41, 71):  # part of a pixel, a row, two rows and more, all but one
        assert_same_draws(model, 5, monkeypatch, context=LABELS, prefix=x[:, :known])
    assert drawn(model, 1, monkeypatch, context=LABELS[:1]) != drawn(model, 1, monkeypatch, context=LABELS[1:2])


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_in_float32_are_those_of_a_pass(kind, monkeypatch):
    from chainrule.kernels import _compiled_raster as loops

    model, x = network(kind, dtype=torch.float32), torch.randint(5, (5, 2, 4, 9))
    program, memories, run = model.program(), [], loops.draw_row

    def draw_row(row, known, images, drawn):
        memories.append(images.memory)
        return run(row, known, images, drawn)

    monkeypatch.setattr(loops, "draw_row", draw_row)
    with torch.no_grad():
        draw = program.start(5, None, model.to_sequence(x), torch.Generator())
        for row in range(4):
            assert draw(row).numel() == 0
            scores = torch.from_numpy(memories[-1][:, program.scores.start :])
            if program.components:  # the last colour, given the others
                parts = scores[:, : 8 * 3].unflatten(1, (8, 3))
                conditional = DiscretizedLogisticMixture(parts[:, 0], parts[:, 2], parts[:, 4], 5)
                got, colour = conditional.log_prob(torch.arange(5).unsqueeze(1)), 1
            else:
                got, colour = scores[:, : 2 * 5].unflatten(1, (2, 5)).log_softmax(2).permute(2, 0, 1), slice(None)
            values = torch.arange(5).view(5, 1, 1, 1, 1).expand(5, *x.shape)
            wanted = model(x).log_prob(values)[:, :, colour, row, -1]
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("make", [GatedPixelCNN, PixelCNN, PixelCNNPP])
def test_draws_in_float32_have_the_probabilities_of_the_model(make, monkeypatch):
    torch.manual_seed(1)
    model = make((1, 2, 2), 2, channels=4, layers=1).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    images = torch.tensor(list(itertools.product(range(2), repeat=4))).view(16, 1, 2, 2)
    with torch.no_grad():
        expected = model.log_prob(images).double().exp().numpy()
    x, _, compiled = drawn(model, 20_000, monkeypatch)
    codes = torch.tensor(x).flatten(1) @ torch.tensor([8, 4, 2, 1])
    counts = codes.bincount(minlength=16).numpy()
    assert compiled
    assert expected.max() > 2 * expected.min()
    assert chisquare(counts, expected / expected.sum() * len(x)).pvalue > 1e-4


@pytest.mark.parametrize("kind", ["gated", "mixture"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_parameters_of_no_distribution_raise(kind, wrong, monkeypatch):
    model = network(kind)
    bias = model.output.bias if kind == "mixture" else model.head.output.bias
    bias.data[:4] = wrong
    for compiled in (True, False):
        with pytest.raises(ValueError, match="NaN or infinite"):
            drawn(model, 1, monkeypatch, compiled)


@pytest.mark.parametrize("kind", ["gated", "mixture"])
def test_another_default_device_changes_nothing(kind, monkeypatch):
    model = network(kind)
    wanted = drawn(model, 5, monkeypatch)
    with torch.device("meta"):
        program = model.program()
    with torch.no_grad(), torch.device("meta"):
        draw = program.start(5, None, None, torch.Generator(device="cpu").manual_seed(3))
        rows = [draw(row) for row in range(4)]
    assert model.from_sequence(torch.cat(rows, 1)).tolist() == wanted[0]


def test_plain_steps_run_where_loops_may_not(without_loops, monkeypatch):
    model = network("gated")
    assert is_compiled(model, monkeypatch)
    with without_loops(model, model.first):
        assert not is_compiled(model, monkeypatch)


@pytest.mark.parametrize("options", [{"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.9}])
def test_filters_take_plain_steps(options, monkeypatch):
    assert not is_compiled(network("gated"), monkeypatch, **options)


def test_few_elements_do_not_load_numba(monkeypatch):
    model, long = network("gated", "1 colour"), 30
    assert is_compiled(model, monkeypatch, long=long)
    assert not is_compiled(model, monkeypatch, long=long + 1)
    assert not is_compiled(model, monkeypatch, long=long, prefix=torch.zeros(1, dtype=torch.long))

"""Log-mel frames are the written equation, frame by frame."""

import math

import pytest
import torch

from chainrule.layers import LogMel
from chainrule.layers._log_mel import mel_filters


def noise(rows: int, samples: int) -> torch.Tensor:
    return torch.rand(rows, samples, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_a_frame_is_the_written_equation() -> None:
    mel = LogMel(1000, num_bands=5, window_seconds=0.05, hop_seconds=0.02, lowest=0.0).double()
    x = noise(1, 131)
    frames, lengths = mel(x)
    assert (mel.window_size, mel.hop_size, mel.fft_size) == (50, 20, 64)
    assert lengths.tolist() == [6]  # windows from 0, 20, ..., 80, and one more for the samples from 130 on
    n = torch.arange(50, dtype=torch.float64)
    window = 0.5 - 0.5 * torch.cos(2 * math.pi * n / 50)
    k = torch.arange(33, dtype=torch.float64)
    turns = 2 * math.pi * k.unsqueeze(1) * n / 64
    for frame, start in ((0, 0), (3, 60), (5, 100)):
        piece = torch.zeros(50, dtype=torch.float64)
        real = x[0, start : start + 50]
        piece[: len(real)] = real
        piece = piece * window
        power = (turns.cos() @ piece) ** 2 + (turns.sin() @ piece) ** 2
        expected = (mel.filters.double() @ power + 1e-6).log()
        # The window and the filters are stored in float32.
        torch.testing.assert_close(frames[0, frame], expected, rtol=0, atol=1e-5)


def test_filters_are_triangles_between_corners_even_in_mel() -> None:
    filters = mel_filters(8000, 4096, num_bands=6, lowest=100.0, highest=3800.0).double()
    frequencies = torch.arange(2049, dtype=torch.float64) * 8000 / 4096
    to_mel = [2595 * math.log10(1 + f / 700) for f in (100.0, 3800.0)]
    corners = [to_mel[0] + (to_mel[1] - to_mel[0]) * place / 7 for place in range(8)]
    corners = [700 * (10 ** (corner / 2595) - 1) for corner in corners]
    for band in range(6):
        left, centre, right = corners[band : band + 3]
        inside = (frequencies > left) & (frequencies < right)
        assert (filters[band, ~inside] == 0).all()
        assert abs(float(frequencies[filters[band].argmax()]) - centre) < 2  # Hz between neighbouring frequencies
        for part, height in ((left + 0.25 * (centre - left), 0.25), (right - 0.4 * (right - centre), 0.4)):
            near = int((frequencies - part).abs().argmin())
            assert abs(float(filters[band, near]) - height) < 0.02
    between = (frequencies > corners[1]) & (frequencies < corners[6])
    torch.testing.assert_close(
        filters.sum(0)[between], torch.ones(int(between.sum()), dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_a_tone_is_loudest_in_its_band() -> None:
    mel = LogMel(8000, num_bands=20)
    time = torch.arange(4000) / 8000
    for band in (3, 10, 17):
        pitch = float(mel.filters[band].argmax()) * 8000 / mel.fft_size
        frames, _ = mel(0.5 * torch.sin(2 * math.pi * pitch * time).unsqueeze(0))
        assert frames[0, 10].argmax() == band


def test_padding_changes_nothing_and_may_hold_anything() -> None:
    mel = LogMel(1000, num_bands=5, window_seconds=0.05, hop_seconds=0.02).double()
    x, lengths = noise(4, 200), torch.tensor([200, 90, 0, 7])
    frames, counts = mel(x, lengths)
    assert counts.tolist() == [9, 3, 0, 1]
    spoilt = x.masked_fill(torch.arange(200) >= lengths.unsqueeze(1), float("nan"))
    assert torch.equal(mel(spoilt, lengths)[0], frames)
    for row in (1, 3):
        alone, count = mel(x[row : row + 1, : lengths[row]])
        assert count.tolist() == [int(counts[row])]
        torch.testing.assert_close(frames[row, : counts[row]], alone[0], rtol=0, atol=1e-12)
        assert (frames[row, counts[row] :] == 0).all()
    assert mel(x[:, :0])[0].shape == (4, 0, 5)


def test_every_sample_counts_and_gradients_reach_it() -> None:
    mel = LogMel(1000, num_bands=5, window_seconds=0.05, hop_seconds=0.02).double()
    x = noise(1, 123).requires_grad_()
    mel(x)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    # The periodic window is 0 at its first sample alone.
    assert (x.grad[0, 1:] != 0).all()


def test_silence_is_finite() -> None:
    frames, _ = LogMel(8000)(torch.zeros(1, 1000))
    torch.testing.assert_close(frames, torch.full_like(frames, math.log(1e-6)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_bands": 0}, "num_bands: expected an integer >= 1, got 0"),
        ({"num_bands": 200}, "num_bands: expected bands that hold a frequency"),
        ({"hop_seconds": 0.0}, "hop_seconds: expected at least one sample"),
        ({"lowest": 5000.0}, "lowest, highest: expected 0 <= lowest < highest <= 4000.0 Hz"),
        ({"floor": 0.0}, "floor: expected a number > 0"),
    ],
)
def test_arguments_are_checked(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogMel(8000, **options)
    with pytest.raises(ValueError, match="waveform: expected real samples"):
        LogMel(8000)(torch.zeros(8, dtype=torch.long))

"""Log-mel frames of a waveform, the usual input of sound recognisers."""

import math
from typing import final

import torch
from torch import Tensor, nn


@final
class LogMel(nn.Module):
    r"""Frames of a waveform, each the logarithm of its power in bands as wide as the ear's.

    .. math::
        X_t = \mathrm{DFT}(w \odot x_{tH : tH + W}), \qquad y_{tn} = \log\Big(\epsilon + \sum_k F_{nk} |X_{tk}|^2\Big)

    w is the periodic Hann window of W samples, H the hop; F has triangles of height 1 whose corners are evenly spaced
    in mel, :math:`2595 \log_{10}(1 + f / 700)` (Stevens et al. 1937; Davis and Mermelstein 1980). The last window is
    filled up with silence, so that every sample counts. It has no weights and carries gradients to the waveform.

    Args:
        sample_rate: samples a second.
        num_bands: N, mel bands.
        window_seconds: length of a window.
        hop_seconds: from one window to the next.
        lowest: lower end of the first band, Hz.
        highest: upper end of the last band, Hz; half the sample rate by default.
        floor: ε, power that is silence, for samples in [-1, 1].

    >>> mel = LogMel(sample_rate=8000, num_bands=20)
    >>> frames, lengths = mel(torch.zeros(2, 800), torch.tensor([800, 300]))
    >>> frames.shape, lengths
    (torch.Size([2, 9, 20]), tensor([9, 3]))
    """

    filters: Tensor
    window: Tensor

    def __init__(
        self,
        sample_rate: int,
        num_bands: int = 40,
        window_seconds: float = 0.025,
        hop_seconds: float = 0.01,
        lowest: float = 20.0,
        highest: float | None = None,
        floor: float = 1e-6,
    ):
        super().__init__()
        highest = sample_rate / 2 if highest is None else highest
        self.window_size, self.hop_size = round(window_seconds * sample_rate), round(hop_seconds * sample_rate)
        self.floor = floor
        # A power of two that holds the window: zeros after it interpolate between frequencies.
        self.fft_size = 1 << (self.window_size - 1).bit_length()
        self.register_buffer("filters", mel_filters(sample_rate, self.fft_size, num_bands, lowest, highest))
        self.register_buffer("window", torch.hann_window(self.window_size, dtype=torch.float64).float())

    def forward(self, waveform: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Frames of each row.

        Args:
            waveform: (B, S) samples in [-1, 1].
            lengths: (B,) real samples of each row, 0 allowed; None if all rows are full.

        Returns:
            Frames (B, T, N), zero past each row's end, and their number in each row (B,): one for each hop that begins
            a window, and one more where samples are left over; none for a row without samples.
        """
        if lengths is None:
            lengths = torch.full((waveform.shape[0],), waveform.shape[1])
        lengths = lengths.to(waveform.device)
        samples = torch.arange(waveform.shape[1], device=waveform.device)
        waveform = waveform.masked_fill(samples >= lengths.unsqueeze(1), 0)
        counts = self.frames(lengths)
        time = int(counts.max()) if len(counts) else 0
        if time == 0:
            return waveform.new_zeros(waveform.shape[0], 0, self.filters.shape[0]), counts
        needed = (time - 1) * self.hop_size + self.window_size
        waveform = nn.functional.pad(waveform, (0, max(needed - waveform.shape[1], 0)))[:, :needed]
        windows = waveform.unfold(1, self.window_size, self.hop_size) * self.window.to(waveform)  # (B, T, W)
        power = torch.fft.rfft(windows, self.fft_size).abs().square()
        bands = (power @ self.filters.to(power).t() + self.floor).log()
        past = torch.arange(time, device=waveform.device) >= counts.unsqueeze(1)
        return bands.masked_fill(past.unsqueeze(2), 0), counts

    def frames(self, samples: Tensor) -> Tensor:
        """Return the number of frames of rows with so many samples."""
        left = (samples - self.window_size).clamp(min=0)
        return torch.where(samples > 0, -(-left // self.hop_size) + 1, 0)


def mel_filters(sample_rate: int, fft_size: int, num_bands: int, lowest: float, highest: float) -> Tensor:
    """Triangles over the frequencies of a real DFT, (num_bands, fft_size / 2 + 1): 1 at a band's centre, 0 from the
    centres of its neighbours on.

    >>> filters = mel_filters(8000, 512, num_bands=10, lowest=0.0, highest=4000.0)
    >>> filters.shape, bool((filters.sum(0)[20:200] - 1 < 1e-5).all())
    (torch.Size([10, 257]), True)
    """
    corners = torch.linspace(_mel(lowest), _mel(highest), num_bands + 2, dtype=torch.float64)
    corners = 700 * (10 ** (corners / 2595) - 1)  # Hz
    frequencies = torch.arange(fft_size // 2 + 1, dtype=torch.float64) * sample_rate / fft_size
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (frequencies - left) / (centre - left), (right - frequencies) / (right - centre)
    filters = torch.minimum(rising, falling).clamp(min=0)
    return filters.float()


def _mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)

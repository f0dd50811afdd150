"""A receptive field in an image, drawn."""

import numpy as np
import torch

from chainrule.data.images.source import Pixels
from chainrule.diagnostics.receptive_field import ReceptiveField

Colour = tuple[int, int, int]
WEAK, STRONG = (208, 225, 242), (8, 48, 107)  # of the influence, on a logarithmic scale
BLIND, BEYOND, LATER, PIXEL = (213, 94, 0), (255, 255, 255), (190, 193, 198), (0, 0, 0)
DECADES = 4.0  # below the largest influence, beyond which all is drawn alike
_LEAST = 280  # pixels of the drawing's width, at least


def field_image(field: ReceptiveField) -> Pixels:
    """Draw the pixels that a pixel depends on, (H', W', 3); each pixel of the image a square.

    Blue by the size of the influence, the strongest of all colours; orange the blind spot; white the pixels beyond the
    reach; grey those that come later; black the pixel itself.

    field: of a model of images, laid out as (C, H, W).
    """
    influence = field.influence.amax(0)  # (H, W)
    strength = (1 + (influence / influence.max().clamp_min(1e-300)).clamp_min(1e-300).log10() / DECADES).clamp(0, 1)
    weak, strong = (
        torch.tensor(WEAK, dtype=torch.float64, device="cpu"),
        torch.tensor(STRONG, dtype=torch.float64, device="cpu"),
    )
    drawn = weak + strength.unsqueeze(-1) * (strong - weak)
    permitted, reached, blind = (part.any(0) for part in (field.permitted, field.reached, field.blind_spot))
    drawn[~reached & permitted] = torch.tensor(BEYOND, dtype=torch.float64, device="cpu")
    drawn[blind & ~reached] = torch.tensor(BLIND, dtype=torch.float64, device="cpu")
    drawn[~reached & ~permitted] = torch.tensor(LATER, dtype=torch.float64, device="cpu")
    row, column = pixel_of(field)
    drawn[row, column] = torch.tensor(PIXEL, dtype=torch.float64, device="cpu")
    scale = max(3, -(-_LEAST // influence.shape[1]))
    squares = np.asarray(drawn.round()).astype(np.uint8).repeat(scale, 0).repeat(scale, 1)
    squares[::scale], squares[:, ::scale] = squares[::scale] // 8 * 7, squares[:, ::scale] // 8 * 7  # thin lines
    return squares


def pixel_of(field: ReceptiveField) -> tuple[int, int]:
    """Row and column of the element that a field belongs to, in raster order."""
    channels, _, width = field.influence.shape
    return divmod(field.position // channels, width)


def blind_side(field: ReceptiveField) -> str:
    """Place of the blind spot of a pixel, in words; empty without a blind spot."""
    places = field.blind_spot.any(0).nonzero().double()
    if not len(places):
        return ""
    row, column = pixel_of(field)
    if bool((places[:, 1] < column).any()) and bool((places[:, 1] > column).any()):
        return "to both sides"
    up, aside = row - float(places[:, 0].mean()), float(places[:, 1].mean()) - column
    return f"to the {'upper ' if up > 0.5 else ''}{'right' if aside > 0 else 'left'}"

"""Images drawn from a trained model, as 8 bits to be looked at."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from chainrule.data.images import brightness
from chainrule.decoding.draw_for import draw_for

if TYPE_CHECKING:
    from chainrule.data.images.source import Pixels
    from chainrule.models import ImageModel
    from chainrule.tasks.image.task import ImageTask

_TOGETHER = 64  # images drawn in one batch


class Sampler:
    """Draws images of a run's model.

    Args:
        run: whose labels and levels they have.
        model: trained.
        temperature: see `AutoregressiveModel.sample`.
        draw: draws whole images, called as `model.sample`, which is the default.
    """

    def __init__(
        self,
        run: "ImageTask",
        model: "ImageModel",
        temperature: float = 1.0,
        draw: "Callable[..., Tensor] | None" = None,
    ):
        self.run, self.model, self.temperature = run, model, temperature
        self.draw = model.sample if draw is None else draw

    def labels_in_turn(self, n: int) -> Tensor | None:
        """(n,) all labels in turn; `None` without labels."""
        classes = self.run.classes
        return None if classes is None else torch.arange(n) % len(classes)

    def label(self, name: str | None, n: int) -> Tensor | None:
        """(n,) the label of that name; all in turn where none is named.

        Raises:
            ValueError: there is no such label, or the model has none.
        """
        classes = self.run.classes
        if name is None:
            return self.labels_in_turn(n)
        if classes is None:
            raise ValueError(f"--label {name}: this model was trained without labels: leave it out")
        if name not in classes:
            raise ValueError(f"--label {name}: expected one of {', '.join(classes):.200}")
        return torch.full((n,), classes.index(name))

    def sketches(self, n: int, labels: Tensor | None, seed: int, seconds: float) -> "Pixels":
        """Draw images as `images` does, in about `seconds`: they are black from where that is over."""
        generator = torch.Generator(next(self.model.parameters()).device).manual_seed(seed)
        stream = self.model.stream(n, labels, temperature=self.temperature, generator=generator)
        length = self.model.sequence_length
        drawn = draw_for(stream, length, seconds).cpu()
        rest = drawn.new_zeros(n, length - drawn.shape[1], *drawn.shape[2:])
        return self._shown(self.model.from_sequence(torch.cat([drawn, rest], 1)))

    def _shown(self, levels: Tensor) -> "Pixels":
        return brightness(levels.numpy().astype(np.uint8), self.run.reduction.levels)

    def images(self, n: int, labels: Tensor | None, seed: int, first_rows: Tensor | None = None) -> "Pixels":
        """Draw images, (n, C, H, W) of 8 bits.

        Args:
            n: how many.
            labels: (n,), or `None`.
            seed: the same seed draws the same images.
            first_rows: (1, C, rows, W) levels that all of them begin with.
        """
        device = next(self.model.parameters()).device
        generator = torch.Generator(device).manual_seed(seed)
        prefix = None if first_rows is None else self.model.to_sequence(first_rows)
        drawn = [
            self.draw(
                len(rows), None if labels is None else labels[rows], prefix=prefix, temperature=self.temperature,
                generator=generator,
            ).cpu()
            for rows in torch.arange(n).split(_TOGETHER)
        ]  # fmt: skip
        return self._shown(torch.cat(drawn))

"""A run on images, whatever is modelled of them."""

from typing import TYPE_CHECKING, Any

from chainrule.tasks.config import FINGERPRINT, check_entries
from chainrule.tasks.image.options import LARGEST
from chainrule.tasks.run_directory import DATA
from chainrule.tasks.task import M, Task

if TYPE_CHECKING:
    from chainrule.data.images import PreparedImages


class ImageDataTask(Task[M]):
    """A run whose prepared data are `chainrule.data.images.PreparedImages`."""

    PREPARED = f"{DATA}/images.json"

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "validation", "shape", "images", "found_levels", "bits", "binarise", "classes"} <= set(facts):
            raise ValueError("facts: expected what preparing images leaves: source, shape, images, levels, classes")
        check_entries("facts", facts, "source", FINGERPRINT)
        shape, classes = facts["shape"], facts["classes"]
        if not isinstance(shape, list) or len(shape) != 3 or not all(type(side) is int for side in shape):
            raise ValueError(f"facts.shape: expected three whole numbers, got {shape!r:.80}")
        if shape[0] not in (1, 3) or not all(1 <= side <= LARGEST for side in shape):
            raise ValueError(f"facts.shape: expected 1 or 3 channels of at most {LARGEST} pixels a side, got {shape}")
        if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
            raise ValueError(f"facts.classes: expected names of labels or null, got {classes!r:.80}")
        if type(facts["found_levels"]) is not int or not 2 <= facts["found_levels"] <= 256:
            raise ValueError(
                f"facts.found_levels: expected a whole number from 2 to 256, got {facts['found_levels']!r:.80}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.config.facts["shape"]
        return channels, height, width

    def images(self) -> "PreparedImages":
        """The prepared images."""
        from chainrule.data.images import open_images

        return open_images(self.path / DATA)

    @classmethod
    def fingerprint(cls, path: str | None) -> dict[str, Any]:
        from chainrule.data.images import source_fingerprint

        assert path is not None
        return source_fingerprint(path)

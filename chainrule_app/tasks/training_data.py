"""Tell if the data to score are those of the training, where all is less surprising than in new data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule_app.readers.sources import fingerprint

if TYPE_CHECKING:
    from chainrule_app.tasks.config import Fingerprint

NOTE = "the run was trained on this very {kind}: new data of its kind are more surprising"


def is_training_file(data: Any, source: "Fingerprint") -> bool:
    """Tell if a path names a file of the content that a run was trained on."""
    if not isinstance(data, str) or not Path(data).is_file() or Path(data).stat().st_size != source.bytes:
        return False
    return bool(fingerprint(data)["sha256"] == source.sha256)

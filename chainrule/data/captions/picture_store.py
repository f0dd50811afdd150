"""Pictures by name: the members of an archive, or the files of a folder."""

from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from chainrule.data.images.folder import SUFFIXES, Fit, Reading
from chainrule.data.members import Member, Members


class PictureStore:
    """The pictures of an archive or a folder, found by the last part of their names.

    Args:
        path: the archive or the folder; see `Members`.
        size: S, every picture becomes (S, S).
        fit: how; see `Reading`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no archive, holds no picture, or two of one name.
    """

    def __init__(self, path: str | Path, size: int, fit: Fit = "crop"):
        self.path = Path(path)
        self._reading = Reading(size=(size, size), colour="rgb", fit=fit)
        self._members: dict[str, Member] = {}
        for member in Members(path, tuple(sorted(SUFFIXES)), "picture").files:
            other = self._members.setdefault(PurePosixPath(member.name).name, member)
            if other is not member:
                raise ValueError(f"{path}: {other.name} and {member.name}: expected one picture of each name")

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def picture(self, name: str) -> npt.NDArray[np.uint8]:
        """(3, S, S), values from 0 to 255.

        Raises:
            ValueError: it cannot be read as a picture; the message names it.
        """
        with self._members[name].open() as file:
            return self._reading.picture(file.read(), self._members[name].label)[0]

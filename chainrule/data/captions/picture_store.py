"""Pictures by name: the members of a zip file, or the files of a folder."""

import zipfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from chainrule.data.images.folder import SUFFIXES, Fit, Reading
from chainrule.data.text import check_file

_LARGEST = 1 << 28  # bytes of one picture: what a zip file says of itself is not to be trusted


class PictureStore:
    """The pictures of a zip file or a folder, found by the last part of their names.

    Args:
        path: the zip file or the folder.
        size: S, every picture becomes (S, S).
        fit: how; see `Reading`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no zip file, holds no picture, or two of one name.
    """

    def __init__(self, path: str | Path, size: int, fit: Fit = "crop"):
        self.path = Path(path)
        self._reading = Reading(size=(size, size), colour="rgb", fit=fit)
        self._archive = None
        if self.path.is_dir():
            names = [str(file.relative_to(self.path)) for file in sorted(self.path.rglob("*")) if file.is_file()]
        else:
            try:
                self._archive = zipfile.ZipFile(check_file(path))
            except zipfile.BadZipFile as error:
                raise ValueError(f"{path}: expected a zip file or a folder of pictures ({error})") from None
            names = [name for name in self._archive.namelist() if not name.endswith("/")]
        self._members: dict[str, str] = {}
        for name in names:
            last = PurePosixPath(name).name
            if PurePosixPath(last.lower()).suffix not in SUFFIXES:
                continue
            if last in self._members:
                raise ValueError(f"{path}: {self._members[last]} and {name}: expected one picture of each name")
            self._members[last] = name
        if not self._members:
            raise ValueError(f"{path}: expected pictures ({', '.join(sorted(SUFFIXES))}), found none")

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def picture(self, name: str) -> npt.NDArray[np.uint8]:
        """(3, S, S), values from 0 to 255.

        Raises:
            ValueError: it cannot be read as a picture; the message names it.
        """
        label = f"{self.path}: {name}"
        if self._archive is None:
            content = (self.path / self._members[name]).read_bytes()
        else:
            member = self._archive.getinfo(self._members[name])
            if member.file_size > _LARGEST:
                raise ValueError(f"{label}: expected at most {_LARGEST} bytes, got {member.file_size}")
            try:
                content = self._archive.read(member)
            except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError) as error:
                raise ValueError(f"{label}: cannot be read ({error}): restore it from a copy") from None
        return self._reading.picture(content, label)[0]

"""The sound files of a folder, of an archive, or a single one."""

from functools import partial
from pathlib import Path

from chainrule.data.members import ARCHIVES, Member, Members, is_visible

ENDINGS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
SoundFile = Member
Collection = partial(Members, endings=ENDINGS, noun="sound")


def is_sounds(path: str | Path) -> bool:
    """Whether a path is meant as sounds: a sound file, or a folder or an archive with more sounds than other files."""
    path = Path(path)
    if path.name.lower().endswith(ENDINGS):
        return True
    if path.is_dir():
        names = [found.name for found in path.rglob("*") if found.is_file() and not found.name.startswith(".")]
    elif path.is_file() and path.name.lower().endswith(ARCHIVES):
        try:
            names = [file.name for file in Collection(path).files]
        except ValueError:
            return False
    else:
        return False
    sounds = sum(is_visible(name, ENDINGS) for name in names)
    return sounds > len(names) - sounds

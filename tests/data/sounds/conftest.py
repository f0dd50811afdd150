"""Lets the tests here import sound_files.py, which stands beside them; and a folder of clips."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sound_files import tone, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty short clips, `{low|high}_{speaker}_{number}.wav`."""
    home = tmp_path / "sounds"
    for number in range(20):
        kind = ("low", "high")[number % 2]
        amplitudes = tone(100 + 7 * number, hertz=(200, 1500)[number % 2])
        write(home / f"{kind}_ann_{number}.wav", amplitudes)
    return home

"""A folder of clips."""

from pathlib import Path

import pytest
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

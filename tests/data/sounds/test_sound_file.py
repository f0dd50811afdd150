"""Sound files to amplitudes at one rate."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sound_files import tone, write

from chainrule_app.readers.sounds import sound_file as module
from chainrule_app.readers.sounds.sound_file import Collection, SoundFile, read_sound, resampled, sound_facts, write_wav


def opened(path: Path) -> SoundFile:
    (file,) = Collection(path).files
    return file


def whole(path: Path, rate: int) -> np.ndarray:
    return np.concatenate(list(read_sound(opened(path), rate)))


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 3000),
    st.lists(st.integers(1, 700), min_size=1, max_size=8),
    st.sampled_from([(8000, 16000), (16000, 8000), (44100, 16000), (11025, 8000), (48000, 44100)]),
)
def test_blocks_of_any_size_give_what_the_whole_gives(frames, sizes, rates):
    from scipy.signal import resample_poly

    x = np.random.default_rng(frames).standard_normal(frames).astype(np.float32)
    cuts = np.cumsum(sizes)
    blocks = [block for block in np.split(x, cuts[cuts < frames]) if len(block)]
    new = np.concatenate(list(resampled(iter(blocks), *rates)))
    common = np.gcd(*rates)
    expected = resample_poly(x, rates[1] // common, rates[0] // common)
    np.testing.assert_allclose(new, expected, atol=1e-5)  # float32 sums in another order


def test_a_sound_is_the_mean_of_its_channels(tmp_path):
    left, right = tone(50), tone(50, hertz=900)
    path = write(tmp_path / "stereo.wav", np.stack([left, right], 1), subtype="FLOAT")
    np.testing.assert_allclose(whole(path, 8000), (left + right) / 2, atol=1e-7)


@pytest.mark.parametrize("ending", ["wav", "flac", "aiff", "ogg"])
def test_formats_are_read(tmp_path, ending):
    path = write(tmp_path / f"a.{ending}", tone(4000))
    read = whole(path, 8000)
    assert len(read) == 4000
    assert np.abs(read - tone(4000))[100:-100].max() < (0.1 if ending == "ogg" else 1e-4)  # ogg loses something
    assert sound_facts(opened(path)).rate == 8000


def test_long_files_are_read_in_blocks(tmp_path, monkeypatch):
    path = write(tmp_path / "a.wav", tone(1000))
    expected = whole(path, 11025)
    monkeypatch.setattr(module, "BLOCK", 64)
    np.testing.assert_allclose(whole(path, 11025), expected, atol=1e-6)


def test_what_is_written_is_read_back(tmp_path):
    numbers = np.array([-32768, -100, 0, 1, 32767])
    write_wav(tmp_path / "a.wav", numbers / 32768, 8000)
    read, rate = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert (read.tolist(), rate) == (numbers.tolist(), 8000)
    write_wav(tmp_path / "b.wav", [-3.0, 3.0], 8000)
    assert soundfile.read(tmp_path / "b.wav", dtype="int16")[0].tolist() == [-32768, 32767]


def test_damage_is_named(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(b"no sound at all")
    with pytest.raises(ValueError, match=r"a\.wav: not a readable sound file .*: repair or remove it"):
        sound_facts(opened(path))
    write(path, tone(0))
    with pytest.raises(ValueError, match=r"a\.wav: contains no samples"):
        sound_facts(opened(path))
    write(path, np.array([0.1, np.nan, 0.2], dtype=np.float32), subtype="FLOAT")
    with pytest.raises(ValueError, match=r"a\.wav: expected finite amplitudes, got NaN"):
        whole(path, 8000)


def test_a_file_cut_in_the_middle_is_damaged(tmp_path):
    path = write(tmp_path / "a.flac", tone(60_000) + np.random.default_rng(0).normal(size=60_000) * 0.1)
    path.write_bytes(path.read_bytes()[:40_000])
    with pytest.raises(ValueError, match=r"a\.flac: (damaged after|truncated)"):
        whole(path, 8000)


def test_a_wav_that_was_cut_is_refused_and_a_streamed_one_is_not(tmp_path):
    path = write(tmp_path / "a.wav", tone(400))
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    for read in (sound_facts, lambda file: list(read_sound(file, 8000))):
        with pytest.raises(ValueError, match=r"a\.wav: truncated: expected 800 bytes of samples, got 700: repair"):
            read(opened(path))
    at = content.index(b"data") + 4
    path.write_bytes(content[:4] + b"\xff" * 4 + content[8:at] + b"\xff" * 4 + content[at + 4 :])  # through a pipe
    assert len(whole(path, 8000)) == 400
    path.write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    with pytest.raises(ValueError, match="contains no samples"):
        sound_facts(opened(path))


def test_channels_that_cancel_are_named(tmp_path):
    path = write(tmp_path / "a.wav", np.stack([tone(400), -tone(400)], 1))
    with pytest.raises(ValueError, match=r"a\.wav: the mean of its channels is silent: keep one channel"):
        whole(path, 8000)
    write(path, np.stack([tone(400), -0.9 * tone(400)], 1))
    assert len(whole(path, 8000)) == 400
    write(path, np.zeros((400, 2), dtype=np.float32))
    assert len(whole(path, 8000)) == 400


def test_the_name_of_a_draft_does_not_reach_a_message(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        write_wav(tmp_path / "none" / "a.wav", np.zeros(3), 8000)
    assert error.value.filename == str(tmp_path / "none" / "a.wav")


def test_rates_without_a_common_divisor_are_refused():
    """The filter between them would take gigabytes."""
    with pytest.raises(ValueError, match="999,983 samples a second cannot be resampled to 8,000"):
        list(resampled(iter([np.zeros(10, np.float32)]), 999_983, 8000))


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.array([100, -100], np.int16), [0.0, np.nan]], ids=repr)
def test_what_is_no_row_of_amplitudes_is_not_written(tmp_path, wrong):
    """Several sounds were once written as one, and samples of 16 bits as a square wave."""
    with pytest.raises(ValueError, match=r"amplitudes: expected finite numbers \(T,\) from -1 to 1, got"):
        write_wav(tmp_path / "a.wav", wrong, 8000)
    assert not list(tmp_path.iterdir())

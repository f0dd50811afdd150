"""Sound files of a folder or an archive: amplitudes at one rate, block by block, and back to a file."""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from chainrule.files import write_bytes
from chainrule.option_error import UserError, option
from chainrule_app.readers.members import Member, Members
from chainrule_app.readers.origin import DataSource, Origin, digest_of
from chainrule_app.readers.sources import SOUNDS


@dataclass(frozen=True)
class HeldSound:
    """One sound in memory."""

    name: str  # its index
    label: str  # the name for errors
    samples: "Amplitudes"  # (T,) amplitudes from -1 to 1
    rate: int  # samples a second

    def skipped(self, error: ValueError) -> dict[str, str]:
        """Return the record of a bad sound."""
        return {"file": self.name, "reason": str(error)}


class HeldSounds(DataSource):
    """Sounds in memory, each of amplitudes (T,)."""

    def __init__(self, origin: Origin, sounds: Iterable[Any], rate: int):
        self.origin = origin
        self.files = [
            HeldSound(str(index), origin.at(index), np.asarray(sound, dtype=np.float32).clip(-1, 1), rate)
            for index, sound in enumerate(sounds)
        ]

    def part(self, name: str) -> list[HeldSound]:
        """Return the sounds of a part of the data: all of them are to train on."""
        return self.files if name == "train" else []

    def fingerprint(self) -> dict[str, Any]:
        parts = (
            part for file in self.files for part in (b"%d %d" % (file.rate, len(file.samples)), file.samples.tobytes())
        )
        return digest_of(self.origin, parts)


SoundFile: TypeAlias = Member | HeldSound


def Collection(source: Any) -> "Members | HeldSounds":  # noqa: N802  as the class that it returns
    """Return the sounds of a folder, an archive or a file, as `Members`; or sounds in memory."""
    return source if isinstance(source, HeldSounds) else Members(source, SOUNDS, "sound")


Amplitudes = npt.NDArray[np.float32]
_STREAMED = 0x7FFFF000  # bytes: from here on programs that write to a pipe say that they do not know the length
_LARGEST_RATIO = 1 << 17  # of two rates, as a fraction; the filter is 20 times longer
_CANCELLED = 1e6  # power of the channels relative to the power of their mean
_QUIET = 1e-12  # power of rounding
BLOCK = 1 << 20  # frames read at a time: a minute at 16 kHz


@dataclass(frozen=True)
class SoundFacts:
    """Header of a sound."""

    rate: int  # frames a second
    frames: int  # samples of each channel
    channels: int  # 1 of mono, 2 of stereo


def sound_facts(file: SoundFile) -> SoundFacts:
    """Read the header."""
    if isinstance(file, HeldSound):
        if not len(file.samples):
            raise ValueError(f"{file.label}: contains no samples: remove it")
        return SoundFacts(file.rate, len(file.samples), 1)
    with file.open() as content, _opened(content, file.label) as sound:
        if sound.frames < 1:
            raise ValueError(f"{file.label}: contains no samples: remove it")
        return SoundFacts(sound.samplerate, sound.frames, sound.channels)


def read_sound(file: SoundFile, rate: int) -> Iterator[Amplitudes]:
    """Yield the mean of the channels at `rate` samples a second, in blocks of any size, each (T,)."""
    if isinstance(file, HeldSound):
        blocks = (file.samples[start : start + BLOCK] for start in range(0, len(file.samples), BLOCK))
        yield from resampled(blocks, file.rate, rate)
        return
    with file.open() as content, _opened(content, file.label) as sound:
        yield from resampled(_mono(sound, file.label), sound.samplerate, rate)


def resampled(blocks: Iterator[Amplitudes], rate: int, new_rate: int) -> Iterator[Amplitudes]:
    """Yield a sound resampled by `scipy.signal.resample_poly`, in bounded memory.

    N samples become ceil(N · new_rate / rate), the same numbers that the whole sound at once would give, to rounding:
    the filter reaches ten samples of the lower rate to either side, and so much is read again with each block.
    """
    if rate == new_rate:
        yield from blocks
        return
    try:
        from scipy.signal import resample_poly
    except ImportError:
        raise ValueError("resampling requires scipy: pip install scipy") from None
    up, down = new_rate // gcd(rate, new_rate), rate // gcd(rate, new_rate)
    if max(up, down) > _LARGEST_RATIO:
        raise UserError(
            f"sounds of {rate:,} samples a second cannot be resampled to {new_rate:,}, as the rates have no large "
            f"common divisor",
            f"pass another {option('rate')}",
        )
    margin = (10 * max(up, down) // up // down + 2) * down  # of the old rate; blocks begin where a new sample does
    held, before = np.zeros(0, dtype=np.float32), 0  # `before` of them are done with, and kept for the filter
    for block in blocks:
        held = np.concatenate([held, block])
        ready = (len(held) - margin - before) // down * down
        if ready > 0:
            new = resample_poly(held, up, down)
            yield new[before * up // down : (before + ready) * up // down].astype(np.float32)
            keep = max(before + ready - margin, 0)
            held, before = held[keep:], before + ready - keep
    if before < len(held):
        yield resample_poly(held, up, down)[before * up // down :].astype(np.float32)


def write_wav(path: str | Path, amplitudes: npt.ArrayLike, rate: int) -> None:
    """Write amplitudes (T,) in [−1, 1] as a mono wav file of 16 bits, whole or not at all; larger ones are clipped.

    Raises:
        ValueError: the amplitudes are of another shape, not finite, or integers beyond [−1, 1].
        OSError: the file cannot be written.
    """
    import wave

    x = np.asarray(amplitudes)
    samples = x.dtype.kind in "iu" and bool(((x < -1) | (x > 1)).any())
    if x.ndim != 1 or samples or not np.isfinite(x).all():
        raise ValueError(f"amplitudes: expected finite numbers (T,) from -1 to 1, got {x.dtype} of shape {x.shape}")
    numbers = np.clip(np.round(x.astype(np.float64) * 32768), -32768, 32767).astype("<i2")
    content = io.BytesIO()
    with wave.open(content, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(numbers.tobytes())
    write_bytes(Path(path), content.getvalue())


def _opened(content: BinaryIO, label: str) -> Any:
    try:
        import soundfile
    except ImportError:
        raise ValueError("reading sounds requires soundfile: pip install soundfile") from None
    _refuse_cut_wav(content, label)
    try:
        return soundfile.SoundFile(content)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.rstrip(".").lower()
        raise ValueError(f"{label}: not a readable sound file ({reason}): repair or remove it") from None


def _refuse_cut_wav(content: BinaryIO, label: str) -> None:
    """Refuse a wav file that ends before its samples do, which libsndfile would read without a word."""
    start = content.tell()
    size = content.seek(0, 2)
    content.seek(start)
    head = content.read(12)
    wav = head[:4] == b"RIFF" and head[8:] == b"WAVE"
    while wav and len(chunk := content.read(8)) == 8:
        length = int.from_bytes(chunk[4:], "little")
        if chunk[:4] == b"data":
            there = size - content.tell()
            if there < length < _STREAMED:
                raise ValueError(
                    f"{label}: truncated: expected {length} bytes of samples, got {there}: repair or remove it"
                )
            break
        content.seek(length + length % 2, 1)
    content.seek(start)


def _mono(sound: Any, label: str) -> Iterator[Amplitudes]:
    import soundfile

    read = 0
    while read < sound.frames:
        try:
            block = sound.read(max(1, BLOCK // sound.channels), dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise ValueError(f"{label}: damaged after {read} samples ({error.error_string})") from None
        if not len(block):
            raise ValueError(f"{label}: truncated: expected {sound.frames} samples, got {read}: repair or remove it")
        if not np.isfinite(block).all():
            raise ValueError(f"{label}: expected finite amplitudes, got NaN or infinity: repair or remove it")
        read += len(block)
        mean = block.mean(1)
        if np.square(block).mean() > _CANCELLED * max(np.square(mean).mean(), _QUIET):
            raise ValueError(f"{label}: the mean of its channels is silent: keep one channel, or remove the file")
        yield mean

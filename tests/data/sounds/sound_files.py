"""Small sound files."""

import io
from pathlib import Path

import numpy as np
import soundfile


def tone(frames: int, rate: int = 8000, hertz: float = 440.0, loud: float = 0.5) -> np.ndarray:
    return (loud * np.sin(2 * np.pi * hertz * np.arange(frames) / rate)).astype(np.float32)


def write(path: Path, amplitudes: np.ndarray, rate: int = 8000, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, amplitudes, rate, **options)
    return path


def wav_bytes(amplitudes: np.ndarray, rate: int = 8000) -> bytes:
    content = io.BytesIO()
    soundfile.write(content, amplitudes, rate, format="WAV")
    return content.getvalue()

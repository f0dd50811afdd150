"""Cache of machine code between runs of the program.

numba's own cache checks only the file of a function, not the files of the functions that it calls, and so could use
outdated code. Here the name of the folder contains a digest of all files of the package. If the folder is not writable,
nothing is cached.
"""

import hashlib
from pathlib import Path
from typing import Any

from numba import config, njit

# Python owns all arrays during a call. Without reference counting the loops take a quarter of the time.
compiled = njit(_nrt=False)
_HOME = Path(__file__).parent


def folder() -> Path:
    """Return the folder for the code of these files, in NUMBA_CACHE_DIR if set, else in `__pycache__`."""
    digest = hashlib.sha256()
    for path in sorted(_HOME.glob("*.py")):
        digest.update(path.read_bytes())
    return Path(config.CACHE_DIR or _HOME / "__pycache__") / f"adaptive-{digest.hexdigest()[:16]}"


def kept(function: Any) -> Any:
    """Enable the cache for a compiled function."""
    before = config.CACHE_DIR
    chosen = folder()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        config.CACHE_DIR = str(chosen)
        function.enable_caching()
    except OSError:
        pass
    finally:
        config.CACHE_DIR = before
    return function


def is_kept() -> bool:
    """Return true if the folder holds machine code."""
    return any(folder().rglob("*.nbc"))

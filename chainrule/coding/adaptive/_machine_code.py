"""Machine code kept between runs of the program, so that the loops are compiled once and not at every start.

numba's own cache looks at the file of a function, not at the files of the functions that it calls, and would use old
code after a change of those. Here the folder bears a digest of all files of the package. Where it cannot be written,
nothing is kept.
"""

import hashlib
from pathlib import Path
from typing import Any

from numba import config, njit

# Arrays belong to whoever calls from Python, for as long as the call lasts: counting references to them in between
# took three quarters of the time.
compiled = njit(_nrt=False)
_HOME = Path(__file__).parent


def folder() -> Path:
    """Where the code of these very files is kept: NUMBA_CACHE_DIR if it is set, else next to Python's own."""
    digest = hashlib.sha256()
    for path in sorted(_HOME.glob("*.py")):
        digest.update(path.read_bytes())
    return Path(config.CACHE_DIR or _HOME / "__pycache__") / f"adaptive-{digest.hexdigest()[:16]}"


def kept(function: Any) -> Any:
    """A compiled function that looks for its machine code in the folder before it compiles."""
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
    """Whether the folder holds machine code."""
    return any(folder().rglob("*.nbc"))

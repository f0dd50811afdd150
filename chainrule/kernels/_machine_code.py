"""Machine code kept between runs of the program, so that the loops are compiled once and not at every start.

numba's own cache looks at the file of a function, not at the files of the functions that it calls, and would use old
code after a change of those. Here the folder bears a digest of all files of the function's package.
"""

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryFile
from typing import Any

from numba import config, njit
from numba.core import event
from numba.core.caching import FunctionCache
from numba.misc.appdirs import AppDirs

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT turns numba's compiler off")

# Arrays belong to whoever calls from Python, for as long as the call lasts: counting references to them in between
# took three quarters of the time.
compiled = njit(_nrt=False)
# Of numbers: a product and a sum may fuse, and sums may be taken in the order of vectors. NaN and infinities stay.
compiled_sums = njit(_nrt=False, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
inlined_sums = njit(_nrt=False, error_model="numpy", fastmath={"contract", "reassoc", "nsz"}, forceinline=True)
_ROOM = 1 << 20  # bytes of machine code: on a full disk numba would raise in the middle of a draw


class _Notice(event.Listener):
    """A line where somebody waits for the first loop of the package to be compiled."""

    def on_start(self, event: Any) -> None:
        # On a terminal alone: the output of a notebook would keep the line.
        if sys.stderr.isatty() and event.data["dispatcher"].py_func.__module__.startswith("chainrule."):
            _tell()

    def on_end(self, event: Any) -> None: ...


@cache
def _tell() -> None:
    print("compiling fast loops for this processor, once: about 10 s", file=sys.stderr)


event.register("numba:compile", _Notice())


class _Cache(FunctionCache):
    """numba's cache of a function; a file that a crash cut short empties it, and raises nothing."""

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except (EOFError, UnpicklingError):
            self.flush()
            return None


def kept(function: Any) -> Any:
    """Return a compiled function that looks for its machine code in the folder before it compiles, if there is one."""
    before = config.CACHE_DIR
    chosen = folder(Path(function.py_func.__code__.co_filename).parent)
    if chosen is not None:
        try:
            config.CACHE_DIR = str(chosen)
            function._cache = _Cache(function.py_func)  # `enable_caching` sets a FunctionCache
        finally:
            config.CACHE_DIR = before
    return function


def folder(package: Path) -> Path | None:
    """Return the folder of the code of a package's files: the first with room to write it, None where none has."""
    return next(filter(_is_writable, _folders(package)), None)


def _folders(package: Path) -> Iterator[Path]:
    """NUMBA_CACHE_DIR if it is set; else next to Python's own code, then numba's own folder of the user."""
    digest = hashlib.sha256()
    for path in (*sorted(package.glob("*.py")), Path(__file__)):
        digest.update(path.read_bytes())
    usual = (package / "__pycache__", Path(AppDirs(appname="numba", appauthor=False).user_cache_dir))
    for home in (Path(config.CACHE_DIR),) if config.CACHE_DIR else usual:
        yield home / f"{package.name}-{digest.hexdigest()[:16]}"


def _is_writable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path) as file:
            file.write(bytes(_ROOM))
        return True
    except OSError:
        return False

"""Optional packages, imported when they are needed."""

from importlib import import_module
from typing import Any


def package(name: str) -> Any:
    """Import a package; raise ValueError with the install command if it is absent."""
    try:
        return import_module(name)
    except ImportError:
        raise ValueError(f"this export needs the package {name}, which is not installed: pip install {name}") from None

"""The text built into every CPython: the topics of its `help()`. It lets a first run need no download."""

import platform


def builtin_text() -> str:
    """The help topics in alphabetical order, about 465,000 characters; the same for the same release of Python."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise FileNotFoundError(
            "no DATA given, and this Python lacks the built-in text (pydoc_data.topics): name a text file"
        ) from None
    return "\n".join(topics[name] for name in sorted(topics))


def builtin_name() -> str:
    """What to call it: its content depends on the release of Python."""
    return f"pydoc_data.topics of Python {platform.python_version()}"

"""The text built into Python: the topics of `help()`."""

import platform

from chainrule.option_error import OptionError


def builtin_text() -> str:
    """Return the help topics in alphabetical order, about 375,000 characters; the same for the same release of Python.

    Topics share passages. A paragraph that has come before, blanks apart, is left out, so that held-out text is not
    text of training.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise OptionError(
            "data", "expected a text, as this Python lacks the built-in one (pydoc_data.topics), got none"
        ) from None
    seen: set[str] = set()
    texts = []
    for name in sorted(topics):
        new = []
        for paragraph in topics[name].split("\n\n"):
            words = " ".join(paragraph.split())
            if words not in seen:
                seen.add(words)
                new.append(paragraph)
        if new:
            texts.append("\n\n".join(new).rstrip("\n") + "\n")
    return "\n".join(texts)


def builtin_name() -> str:
    """Name of the text; its content depends on the release of Python."""
    return f"pydoc_data.topics of Python {platform.python_version()}"

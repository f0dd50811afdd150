"""A page of HTML that needs nothing else: its head, its style, and a policy that lets nothing in."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # a browser then refuses whatever slipped in


def plain_page(title: str, body: Sequence[str]) -> str:
    """The whole page.

    Args:
        title: of the page, plain text.
        body: parts in HTML, escaped where they hold anything from outside.

    >>> plain_page("a < b", ["<p>text</p>"]).split("<title>")[1][:8]
    'a &lt; b'
    """
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )

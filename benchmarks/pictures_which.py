"""The picture of docs/which_model.md: kinds of data, the default model of each, and the minutes of a first result.

python benchmarks/pictures_which.py
"""

import argparse
from pathlib import Path

STATIC = Path(__file__).parent.parent / "docs" / "_static"
ROWS = [  # data, what is asked of it, default model, minutes for a first result, colour
    ("text, logs", "write, score, odd lines", "LSTM + counts of n-grams", 3, "#0969da"),
    ("table", "fill, predict, odd cells", "MADE over columns", 1, "#8250df"),
    ("series", "forecast, odd values", "LSTM + smoothing + line", 1, "#1a7f37"),
    ("images to 32 × 32", "draw, complete, codes", "gated PixelCNN; VAE for codes", 10, "#bc4c00"),
    ("labelled texts", "classify", "attention + TF-IDF", 1, "#bf3989"),
    ("labelled images", "classify", "CNN", 5, "#bf3989"),
    ("words with tags", "tag, find names", "BiLSTM + CRF", 3, "#9a6700"),
    ("pairs of sentences", "translate, search", "Transformer", 10, "#9a6700"),
    ("images, captions", "describe", "CNN + decoder with attention", 10, "#bc4c00"),
    ("sound", "draw, complete", "WaveNet", 10, "#1b7c83"),
    ("music (MIDI)", "draw, continue", "RNN-MADE", 10, "#1b7c83"),
]
HIGH, TOP = 34, 40
INKS = {"light": "#1b1d21", "dark": "#e8e9ea"}


def picture(ink: str) -> str:
    """The SVG on a light or a dark page."""
    lines = [
        f'<text x="{x}" y="24" class="h">{words}</text>'
        for x, words in ((10, "your data"), (188, "what you ask"), (398, "default model"), (645, "first result"))
    ]
    for number, (data, asked, model, minutes, colour) in enumerate(ROWS):
        y = TOP + number * HIGH
        middle = y + HIGH / 2 + 4
        lines += [
            f'<rect x="4" y="{y + 2}" width="160" height="{HIGH - 6}" rx="7" fill="{colour}" fill-opacity="0.2" '
            f'stroke="{colour}"/>',
            f'<text x="14" y="{middle}" class="t">{data}</text>',
            f'<text x="188" y="{middle}">{asked}</text>',
            f'<path d="M360 {middle - 4} h26" stroke="{ink}" stroke-width="1.5" marker-end="url(#a)"/>',
            f'<text x="398" y="{middle}" class="t">{model}</text>',
            f'<rect x="645" y="{y + 9}" width="{10 * minutes}" height="{HIGH - 20}" rx="3" fill="{colour}"/>',
            f'<text x="{651 + 10 * minutes}" y="{middle}">{minutes} min</text>',
        ]
    height = TOP + len(ROWS) * HIGH + 8
    style = (
        'text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:14px;fill:' + ink + "}"
        ".t{font-weight:600}.h{font-size:13px}"
    )
    arrow = (
        '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{ink}"/></marker>'
    )
    words = "Eleven kinds of data, what can be asked of each, its default model and the minutes for a first result"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 810 {height}" role="img" aria-label="{words}">'
        f"<defs>{arrow}</defs><style>{style}</style>{''.join(lines)}</svg>\n"
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, ink in INKS.items():
        (STATIC / f"which_model_{name}.svg").write_text(picture(ink), encoding="utf-8")

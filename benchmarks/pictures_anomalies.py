"""The picture of docs/anomalies.md: the oddest lines of a log, each character as strong as it exceeds its expectation.

    python benchmarks/pictures_anomalies.py --run runs/log --log today.log

The run and the log are those of the commands on that page. Writes docs/_static/anomalies_light.svg and
anomalies_dark.svg.
"""

import argparse
from html import escape
from pathlib import Path

from pictures_first import INKS, STATIC

import chainrule

LINES, WIDEST = 7, 104  # lines in the picture, and characters of each
ACROSS, DOWN, MOST = 8.45, 52, 12  # pixels; bits of the strongest background


def picture(rows: list[tuple[str, str, list[float]]], ink: str, glow: str, faint: str) -> str:
    """Lines with their reasons as SVG; their bits are those of each character."""
    parts = []
    for row, (line, why, bits) in enumerate(rows):
        y = 28 + row * DOWN
        for column, character in enumerate(line[:WIDEST]):
            x = 10 + column * ACROSS
            strength = min(max(bits[column], 0) / MOST, 1)
            if strength > 0.05:
                parts.append(
                    f'<rect x="{x:.1f}" y="{y - 15}" width="{ACROSS}" height="21" fill="{glow}" '
                    f'fill-opacity="{strength:.2f}"/>'
                )
            if character != " ":
                parts.append(f'<text x="{x + ACROSS / 2:.1f}" y="{y}" fill="{ink}">{escape(character)}</text>')
        if len(bits) > len(line) and len(line) < WIDEST and bits[len(line)] > 1:  # the end of the line
            parts.append(f'<rect x="{10 + len(line) * ACROSS:.1f}" y="{y - 15}" width="4" height="21" fill="{glow}"/>')
        parts.append(f'<text x="10" y="{y + 19}" fill="{faint}" style="text-anchor:start">{escape(why)}</text>')
    width, height = 20 + WIDEST * ACROSS, 28 + len(rows) * DOWN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        'aria-label="Lines of a log; the stretches that are odd glow, and a line below each says why">'
        '<style>text{font:14px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;text-anchor:middle}</style>'
        f"{''.join(parts)}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/log"))
    parser.add_argument("--log", type=Path, default=Path("today.log"))
    options = parser.parse_args()
    run = chainrule.load(options.run)
    found = run.score(str(options.log)).top(LINES)
    elements = run.score(found["text"]).per("element")
    rows = []
    for index, (line, why) in enumerate(zip(found["text"], found["why"], strict=True)):
        bits = [row["spot"] for row in elements if row["index"] == index]
        rows.append((line, why, bits))
    for name, inks in INKS.items():
        (STATIC / f"anomalies_{name}.svg").write_text(picture(rows, *inks), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The picture at the top of the README: a text, images, a forecast and the inside of a network, light and dark."""

import base64
import html
import io
import re
from typing import Any

import numpy as np
from pictures import Studio, chain, file, halves
from PIL import Image

MONTHS = 24
STYLE = """
:root { --page: #ffffff; --card: #ffffff; --ink: #1b1d21; --muted: #5f646c; --grid: #d8dade;
        --blue: #0072b2; --orange: #c04f00; --green: #00805d; --surprise: 213 94 0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --card: #151b23; --ink: #e8e9ea; --muted: #a3a8b0; --grid: #373b41;
          --blue: #5cb5ec; --orange: #f0914a; --green: #3fc79a; --surprise: 226 105 20; } }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.4 "DejaVu Sans", sans-serif; }
main { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; width: 996px; padding: 2px; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 8px; padding: 12px 16px;
          height: 304px; box-sizing: border-box; overflow: hidden; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 0 0 8px; color: var(--muted); font-size: 13px; }
pre { margin: 0; font: 14.5px/1.62 "DejaVu Sans Mono", monospace; }
.pixels { margin-bottom: 6px; display: flex; justify-content: space-between; }
.pixels i { width: 66px; height: 66px; }
svg { display: block; width: 100%; }
svg text { font-family: "DejaVu Sans", sans-serif; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; font-size: 13px; margin-top: 12px; }
"""


def overview(studio: Studio) -> None:
    """Four cards in one picture, in both colour schemes."""
    cards = [
        ("Text: how surprising is each character?", "chainrule score", text(studio)),
        ("Images: the upper half is given", "chainrule sample --complete", completions(studio)),
        ("Series: two years ahead, and what came", "chainrule forecast", fan(studio)),
        ("Inside: how far does a network remember?", "chainrule inspect", curves(studio)),
    ]
    sections = [f"<section><h2>{title}</h2><p><code>{verb}</code></p>{body}</section>" for title, verb, body in cards]
    page = studio.made / "overview.html"
    page.write_text(f'<meta charset="utf-8"><style>{STYLE}</style><main>{"".join(sections)}</main>', encoding="utf-8")
    for dark in (False, True):
        name = f"overview_{'dark' if dark else 'light'}"
        studio.photograph(page.resolve().as_uri(), name, width=1000, part="main", dark=dark, scale=2)


def text(studio: Studio) -> str:
    """Lines of the held-out text, each character coloured by its surprise."""
    run = studio.load("shakespeare")
    last = (studio.data / "tinyshakespeare" / "input.txt").read_text()[-1500:]  # held out of training
    surprise = run.score([last]).per("element")["bits_per_element"]
    shown = []
    for symbol, bits in list(zip(last, surprise, strict=True))[last.index("ANTONIO:\nNor I; my") :]:
        strength = min(bits / 7, 1) * 0.85
        shown.append(f'<span style="background: rgb(var(--surprise) / {strength:.2f})">{html.escape(symbol)}</span>')
    return f"<pre>{''.join(shown)}</pre>"


def completions(studio: Studio) -> str:
    """The upper halves of three digits, and six ways to go on with each."""
    run = studio.load("digits")
    rows = []
    for image, label in list(halves())[:3]:
        drawn = run.sample(6, complete=file(studio, image), keep_rows=4, label=label, seed=0)
        given = np.where(np.arange(8)[:, None] < 4, image, 0)
        cells = [stencil(given, "--blue"), *(stencil(each, "--ink") for each in drawn)]
        rows.append(f'<div class="pixels">{"".join(cells)}</div>')
    return "".join(rows)


def stencil(image: np.ndarray, colour: str) -> str:
    """An image in one colour of the page, brighter pixels denser."""
    alpha = Image.fromarray(image.astype("uint8")).resize((112, 112), Image.Resampling.NEAREST)
    picture, data = Image.new("RGBA", alpha.size), io.BytesIO()
    picture.putalpha(alpha)
    picture.save(data, "png")
    mask = f"url(data:image/png;base64,{base64.b64encode(data.getvalue()).decode()})"
    return f'<i style="background: var({colour}); mask: {mask} center / contain no-repeat"></i>'


def fan(studio: Studio) -> str:
    """The last years, the quantiles of what may follow, and what followed."""
    run = studio.load("airline")
    rows = (studio.data / "time_series" / "airline-passengers.csv").read_text().splitlines()[1:]
    values = [float(row.rsplit(",", 1)[1]) for row in rows]
    levels = ("0.05", "0.25", "0.5", "0.75", "0.95")
    forecast = run.forecast(studio.made / "passengers.csv", seed=0, quantiles=",".join(levels))
    low, lower, middle, upper, high = (forecast[f"q{level}"] for level in levels)
    now = len(values) - MONTHS
    start = now - 60

    def at(value: float) -> float:
        return 400 - 0.72 * (value - 100)

    def line(points: Any, first: int = now) -> str:
        return " ".join(f"{34 + 9 * (first + place - start):.0f},{at(y):.1f}" for place, y in enumerate(points))

    def band(below: Any, above: Any, opacity: float) -> str:
        corners = f"{line(above)} {' '.join(reversed(line(below).split()))}"
        return f'<polygon points="{corners}" fill="var(--blue)" opacity="{opacity}"/>'

    def curve(points: str, colour: str, style: str = "") -> str:
        return f'<polyline points="{points}" fill="none" stroke="var(--{colour})" stroke-width="3" {style}/>'

    grid = [
        f'<line x1="34" x2="790" y1="{at(y):.0f}" y2="{at(y):.0f}" stroke="var(--grid)"/>'
        f'<text x="28" y="{at(y) + 6:.0f}" text-anchor="end" fill="var(--muted)" font-size="19">{y}</text>'
        for y in (200, 400, 600)
    ]
    drawn = [
        *grid,
        band(low, high, 0.22),
        band(lower, upper, 0.35),
        curve(line(middle), "blue"),
        curve(line(values[start:now], start), "ink"),
        curve(line(values[now:]), "orange", 'stroke-dasharray="8 6"'),
        '<text x="60" y="52" fill="var(--blue)" font-size="19">5% to 95% of 100 drawn futures</text>',
        '<text x="60" y="82" fill="var(--orange)" font-size="19">what came (not shown in training)</text>',
    ]
    return f'<svg viewBox="-14 0 812 410">{"".join(drawn)}</svg>'


def curves(studio: Studio) -> str:
    """Two figures of the page of an inspection."""
    path = studio.train("shakespeare")
    if not (path / "report.html").exists():
        chain("inspect", str(path))
    page = (path / "report.html").read_text(encoding="utf-8")
    figures = []
    for caption in ("Effect of the steps on a gradient", "How long an input is remembered"):
        drawing = re.search(rf"<figcaption>{caption}</figcaption>(<svg.*?</svg>)", page, re.DOTALL)
        assert drawing is not None
        figures.append(f"<div>{caption}{drawing[1]}</div>")
    words = "One step lets a gradient pass (green), many shrink it (blue)."
    return f'<div class="pair">{"".join(figures)}</div><p>{words}</p>'

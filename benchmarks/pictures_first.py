"""The picture on the first page: new sentences coloured by surprise, in which two planted errors glow.

    python benchmarks/pictures_first.py [--run runs/first]

A run that does not exist is trained first, by the command that the page prints. Writes docs/_static/first_light.svg and
first_dark.svg, and prints what each planted error costs beside the word that belongs there.
"""

import argparse
import subprocess
import sys
from html import escape
from pathlib import Path

import chainrule

STATIC = Path(__file__).parent.parent / "docs" / "_static"
TEXT = """\
The method returns a new dictionqry, and the original
object is not changed. If the argument is not a string,
an exception is raised. This function can be used to
create a clsas with the same name as the module.
"""
PLANTED = {"dictionqry": "dictionary", "clsas": "class"}
INKS = {"light": ("#1f2328", "#d1242f", "#57606a"), "dark": ("#e6e8eb", "#ff7b72", "#9aa2ac")}
ACROSS, DOWN = 11.4, 31


def surprise(run: chainrule.Run, text: str) -> list[float]:
    """Bits of each character of `text`."""
    return [float(bits) for bits in run.score([text]).per("element")["bits_per_element"]][: len(text)]


def picture(bits: list[float], ink: str, glow: str, faint: str) -> str:
    """TEXT as SVG, each character on a background as strong as its surprise."""
    parts, place = [], 0
    lines = TEXT.splitlines()
    width = max(map(len, lines)) * ACROSS + 20
    for row, line in enumerate(lines):
        y = 30 + row * DOWN
        for column, character in enumerate(line):
            x, strength = 10 + column * ACROSS, min(bits[place] / 12, 1) ** 2
            parts.append(
                f'<rect x="{x:.1f}" y="{y - 18}" width="{ACROSS}" height="25" fill="{glow}" '
                f'fill-opacity="{strength:.2f}"/>'
            )
            if character != " ":
                parts.append(f'<text x="{x + ACROSS / 2:.1f}" y="{y}" fill="{ink}">{escape(character)}</text>')
            place += 1
        place += 1  # the end of the line
    height = 30 + len(lines) * DOWN + 12
    scale = "".join(
        f'<rect x="{10 + 46 * step}" y="{height - 24}" width="46" height="8" fill="{glow}" '
        f'fill-opacity="{min(step * 3 / 12, 1) ** 2:.2f}"/>'
        for step in range(5)
    )
    label = (
        f'<text x="250" y="{height - 15}" fill="{faint}" style="font-size:14px;text-anchor:start">0 to 12 bits</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="Four lines of text; two misspelt words glow"><style>text{{font:19px ui-monospace,Menlo,Consolas,'
        f'"DejaVu Sans Mono",monospace;text-anchor:middle}}</style>{"".join(parts)}{scale}{label}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/first"), help="directory of the run")
    path = parser.parse_args().run
    if not (path / "model.safetensors").exists():
        command = ["train", "--budget", "3m", "--seed", "0", "--out", str(path)]
        subprocess.run([sys.executable, "-m", "chainrule", *command], check=True)
    run = chainrule.load(path)
    bits = surprise(run, TEXT)
    for name, inks in INKS.items():
        (STATIC / f"first_{name}.svg").write_text(picture(bits, *inks), encoding="utf-8")
    for wrong, right in PLANTED.items():
        begin = TEXT.index(wrong)
        mended = surprise(run, TEXT.replace(wrong, right))
        print(f"{wrong}: {sum(bits[begin : begin + len(wrong)]):.1f} bits, {right}: "
              f"{sum(mended[begin : begin + len(right)]):.1f}")  # fmt: skip
    calm = sorted(bits)
    print(f"half of the characters cost less than {calm[len(calm) // 2]:.2f} bits, nine tenths less than "
          f"{calm[len(calm) * 9 // 10]:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()

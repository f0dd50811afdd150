"""A table of many columns: what is shown of it stays readable."""

import json


def test_a_wide_table_is_shown_in_part(command, ok, tmp_path):
    """The first columns are listed, the others counted by kind; rows drawn in training are cut; `--json` has all."""
    columns = 40
    rows = [
        [
            f"{n * k % 97 / 7:.3f}" if k % 4 == 0 else str((n * 7919 + k * n * n) // 13 % 2)
            for k in range(1, columns + 1)
        ]
        for n in range(80)
    ]
    header = [f"x{k}" for k in range(1, columns + 1)]
    (tmp_path / "wide.csv").write_text("\n".join(map(",".join, [header, *rows])))
    outcome = ok("train", tmp_path / "wide.csv", "--out", tmp_path / "run", "--steps", 2, "--hidden-size", 8)
    listed = [line.split() for line in outcome.err.splitlines() if line.startswith("  x")]
    assert [name for name, *_ in listed] == header[:12]
    assert [kind for _, kind, *_ in listed[:4]] == ["categorical"] * 3 + ["real"]
    assert "  and 28 more: 21 categorical, 7 real\n" in outcome.err
    drawn = [line for line in outcome.err.splitlines() if line.startswith("    ") and "," in line]
    assert drawn
    assert all(len(line) <= 164 for line in drawn)
    about = command("info", tmp_path / "run")
    assert "  and 28 more: 21 categorical, 7 real" in about.out
    facts = json.loads(command("info", tmp_path / "run", "--json").out)
    assert header[-1] in json.dumps(facts)

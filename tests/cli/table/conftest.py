"""A table of mixed columns with missing cells, and a run of it."""

import pytest
from small_data import TABLE_COLUMNS, write_colours, written

from chainrule_app.cli.main import main


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    def row(n):
        colour = ["red", "blue", "green"][n % 3]
        return f"{colour},{n * n % 101},{'?' if n % 11 == 3 else n % 37 / 7},{'yes' if n % 3 else 'no'}"

    return written(tmp_path_factory.mktemp("table") / "rows.csv", [",".join(TABLE_COLUMNS), *map(row, range(200))])


@pytest.fixture(scope="session")
def run(rows, tmp_path_factory):
    """Trained for a few steps; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", str(rows), "--out", str(out), "--steps", "20", "--json"]) == 0
    return out


@pytest.fixture(scope="session")
def learnt(rows, tmp_path_factory):
    """A run that knows how columns go together."""
    out = tmp_path_factory.mktemp("learnt") / "run"
    few = ("--steps", "300", "--validate-every", "150", "--hidden-size", "32")
    assert main(["train", str(rows), "--out", str(out), *few]) == 0
    return out


@pytest.fixture(scope="session")
def named_run(tmp_path_factory):
    """A run that left out the column id; not to be written to."""
    home = tmp_path_factory.mktemp("named")
    rows = [f"r{n},{['red', 'blue'][n % 2]},{n % 37 / 4:.2f},{n * n % 21}" for n in range(120)]
    (home / "rows.csv").write_text("\n".join(["id,colour,size,count", *rows]))
    arguments = ["--types", "id=skip", "--steps", "2", "--hidden-size", "8", "--json"]
    assert main(["train", str(home / "rows.csv"), "--out", str(home / "run"), *arguments]) == 0
    return home / "run"


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """A table of colours, sizes and weights; not to be written to."""
    return write_colours(tmp_path_factory.mktemp("tables") / "real.csv", 800, 0)

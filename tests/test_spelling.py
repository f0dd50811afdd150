"""Notes name options as their user writes them: flags in a command line, keyword arguments in Python."""

import chainrule
from chainrule_app.cli.main import main


def test_a_note_names_an_option_as_its_user_writes_it(tmp_path, capsys):
    texts = [f"{word} day" for word in ("good", "bad") * 8]
    run = chainrule.fit(
        list(zip(texts, ["yes", "no"] * 8, strict=True)), task="classify", steps=1, hidden_size=2, max_length=1,
        out=tmp_path / "run",
    )  # fmt: skip
    assert "texts to train on cut after 1 words (max_length)" in capsys.readouterr().err
    assert "1 text cut after element 1 (max_length)" in list(run.classify(["a good day"]).notes())
    (tmp_path / "new.txt").write_text("a good day\n")
    assert main(["classify", str(tmp_path / "run"), str(tmp_path / "new.txt")]) == 0
    assert "1 text cut after element 1 (--max-length)" in capsys.readouterr().out


def test_what_chainrule_chose_is_told_as_it_is_to_be_given(tmp_path, capsys):
    chainrule.fit(["a b c d"] * 50, steps=1, hidden_size=2, out=tmp_path / "run")
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("reproduce with: "))
    options = eval(f"dict({line.removeprefix('reproduce with: ')})")  # noqa: S307  it is what a reader pastes
    assert options["threads"] >= 1

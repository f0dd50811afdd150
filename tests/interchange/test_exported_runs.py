"""Runs exported for the Hub, which are whole but for their data: they answer, and begin other runs."""

import numpy as np
import pytest
import small_data

import chainrule

IMAGE = np.random.default_rng(1).integers(0, 256, (8, 8), dtype=np.uint8)
ASKED = {
    "table": lambda run: run.score(
        [{"first": "a", "second": "x", "third": 1}, {"first": "b", "second": "z", "third": 0}]
    ),
    "translate": lambda run: run.translate(["a b", "c"], beam=2),
    "caption": lambda run: run.caption([IMAGE]),
}


@pytest.mark.parametrize("task", ASKED)
def test_an_exported_run_answers_and_begins_another_run(task, tmp_path):
    data, *flags = small_data.WRITERS[task](tmp_path)
    options = {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)}
    run = chainrule.fit(data, out=tmp_path / "run", steps=1, **options)
    run.export("hub", tmp_path / "hub")
    exported = chainrule.load(tmp_path / "hub")
    assert not exported._task.is_prepared()
    expected, found = ASKED[task](run), ASKED[task](exported)
    assert found["nats"] == expected["nats"]
    assert len(found["cell" if task == "table" else found.main]) == len(expected)
    sources = {name: value for name, value in options.items() if name in ("task", "captions")}
    following = chainrule.fit(data, init=exported, steps=1, **sources)
    following.export("hub", tmp_path / "again")
    assert following.config["init"]["run"] == str(tmp_path / "hub")
    assert str(tmp_path) not in (tmp_path / "again" / "config.json").read_text()


def test_the_playground_shows_an_exported_run_with_codes(tmp_path):
    from chainrule.serve._playground import about

    (data,) = small_data.write_table(tmp_path)
    run = chainrule.fit(data, model="vae", latent_size=2, hidden_size=4, steps=1, out=tmp_path / "run")
    run.export("hub", tmp_path / "hub")
    shown = about("hub", chainrule.load(tmp_path / "hub"), False)
    assert (shown["view"], shown["facts"]["dimensions"], shown["facts"]["examples"]) == ("latent", [0, 1], 0)

"""Small runs of the tasks that several processes answer."""

import pytest
from scale_data import DATA, SIZES, TINY

import chainrule


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    runs = {}

    def run_of(task):
        if task not in runs:
            out = runs[task] = tmp_path_factory.mktemp("runs") / task
            chainrule.fit(DATA[task](), task=task, out=out, **TINY, **SIZES.get(task, {"hidden_size": 8}))
        return runs[task]

    return run_of

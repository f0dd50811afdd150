"""Small runs of the tasks that several processes answer, and a storage behind URLs."""

import pytest
from scale_data import DATA, SIZES, TINY

import chainrule
from chainrule_app.readers import copies, remote


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    runs = {}

    def run_of(task):
        if task not in runs:
            out = runs[task] = tmp_path_factory.mktemp("runs") / task
            chainrule.fit(DATA[task](), task=task, out=out, **TINY, **SIZES.get(task, {"hidden_size": 8}))
        return runs[task]

    return run_of


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """The storage memory://, empty, and a folder for copies."""
    monkeypatch.setenv(copies.CACHE, str(tmp_path / "copies"))
    monkeypatch.setattr(remote, "_FRESH", 0.0)
    monkeypatch.setattr(remote, "_PAUSE", 0.0)
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    return memory

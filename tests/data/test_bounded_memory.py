import subprocess
import sys

import pytest

pytest.importorskip("resource")

MEASURE = """
import resource, sys
from chainrule.data import LineBatches, StreamBatches, prepare_corpus

def peak():  # MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

source, directory, level, reading = sys.argv[1:]
before = peak()
corpus = prepare_corpus(source, directory, level=level, reading=reading)
batches = StreamBatches(corpus.train, 64, 64) if reading == "stream" else LineBatches(corpus.train, 64, 200)
for step in range(0, batches.steps_per_epoch, batches.steps_per_epoch // 50):
    batches.at(step)
print(peak() - before)
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A text of 120 MB in lines of unequal length."""
    path = tmp_path_factory.mktemp("big") / "text"
    block = "".join(f"line {i} " + "of words " * (i % 17) + "é\n" for i in range(12_000)).encode()
    with open(path, "wb") as file:
        file.writelines([block] * (120_000_000 // len(block)))
    yield path
    path.unlink()


@pytest.mark.parametrize(
    ("level", "reading"), [("char", "stream"), pytest.param("byte", "lines", marks=pytest.mark.slow)]
)
def test_memory_does_not_grow_with_the_text(big, tmp_path, level, reading):
    command = [sys.executable, "-c", MEASURE, str(big), str(tmp_path / "corpus"), level, reading]
    growth = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (tmp_path / "corpus" / "train.tokens").unlink()
    # measured 40 to 70 MB for texts of 120 and 300 MB alike: working arrays of one chunk of 1 MB, and mapped pages
    assert growth < 100

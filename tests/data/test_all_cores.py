"""A large text prepared by several processes: the same files, byte for byte."""

from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from chainrule.data import ByteVocabulary, WordVocabulary
from chainrule_app.readers import corpus
from chainrule_app.readers.all_cores import Processes
from chainrule_app.readers.journal import Journals


@pytest.fixture
def text(tmp_path):
    random = Random(0)
    words = ["sea", "tide,", "<unk>", "naïve", "3.14", "don't", "…", "a b", "x" * 50]
    lines = [
        " ".join(random.choices(words, k=random.randrange(9))) + random.choice(["", "  ", "\r"]) for _ in range(900)
    ]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n", newline="")
    return path


def prepared(text, folder, processes, monkeypatch, **options):
    monkeypatch.setattr(corpus, "processes_for", lambda *about: processes)
    corpus.prepare_corpus(text, folder, **options)
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_several_processes_count_and_encode_what_one_does(text, tmp_path):
    content = text.read_text()
    chunks = [content[start : start + 700] for start in range(0, len(content), 700)]
    with Processes(2, Journals(tmp_path)) as processes:
        counted = partial(processes.counted, split_punctuation=True)
        alone, together = (
            WordVocabulary.fit(chunks, min_count=2, split_punctuation=True, **elsewhere)
            for elsewhere in ({}, {"counted": counted})
        )
        assert together.words == alone.words
        ids = np.concatenate([*processes.encoded(alone, "<u2", chunks)])
    assert ids.tolist() == alone.encode(content).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"level": "word", "reading": "lines", "min_count": 20}, {"level": "bpe", "vocabulary_size": 300}],
    ids=["word", "bpe"],
)
def test_the_number_of_processes_changes_no_byte_of_a_store(text, tmp_path, monkeypatch, options):
    alone = prepared(text, tmp_path / "one", 0, monkeypatch, **options)
    assert prepared(text, tmp_path / "two", 2, monkeypatch, **options) == alone


def test_small_texts_and_levels_that_are_read_as_fast_have_no_processes():
    assert corpus.processes_for(1000, WordVocabulary) == 0
    assert corpus.processes_for(1 << 40, ByteVocabulary) == 0


def test_a_process_that_is_killed_ends_the_preparation_in_one_line(tmp_path):
    with Processes(1, Journals(tmp_path)) as processes:
        counted = processes.counted(iter(["a b a", "b"]), split_punctuation=False)
        assert next(counted) == {"a": 2, "b": 1}
        processes._all[0].kill()
        with pytest.raises(ValueError, match=r"ended with status -9: free some memory"):
            list(processes.counted(iter(["a"]), split_punctuation=False))

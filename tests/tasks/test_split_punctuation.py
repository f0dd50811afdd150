"""Words and punctuation apart, from the training to the text that comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule
from chainrule.data import WordVocabulary
from chainrule_app.tasks.text import compression

TEXT = "He said: \"Well, well.\" She didn't (not yet); it's 3.50, or so.\n" * 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    run = chainrule.fit(text=TEXT, level="word", split_punctuation=True, steps=30, hidden_size=16, plain=True, seed=0)
    run.save(folder / "run")
    return folder / "run"


def test_it_draws_and_scores_text_as_it_is_written(run):
    loaded = chainrule.load(run)
    (text,) = loaded.sample(1, prompt='He said: "We', length=30, seed=1)
    assert text.startswith('He said: "Well')
    assert " ," not in text
    assert loaded.score(["She didn't (not yet)."])["elements"][0] == 7


@given(st.text(alphabet="aW1 \n.,'(\"<unk>￭\u00a0"))
def test_symbols_and_what_is_kept_beside_them_restore_every_text(text):
    vocabulary = WordVocabulary.fit([TEXT], split_punctuation=True)
    written = text + 'Wellington, (zebra)!\n"Wellington, well."  two  spaces\n(never-seen) <unk> 3.51, a￭b.\n\n'
    ids, extra = compression._symbols(vocabulary, written.encode())
    assert compression._bytes(vocabulary, ids, extra, iter(extra.get("unknown", ()))).decode() == written


def test_other_levels_have_no_punctuation_to_split(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    with pytest.raises(ValueError, match='split_punctuation: splits words, got level="char"'):
        chainrule.fit(tmp_path / "a.txt", split_punctuation=True, steps=1)


def test_a_prompt_with_an_unseen_word_names_it_without_a_joiner(run):
    with pytest.raises(ValueError, match="never saw the word 'zebra'"):
        chainrule.load(run).sample(1, prompt='He said: "zebra, ')

"""Files in columns: what is read of them, what is written back, and the line that is named when they are wrong."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.origin import Origin
from chainrule_app.readers.tagged.conll_file import ConllFile, read_conll

CONLLU = """# newdoc id = a
# text = I don't.
1\tI\tI\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

# text = #hash
1\t#hash\t#hash\tX\tADD\t_\t0\troot\t_\t_
""".splitlines()


def words(file):
    return [list(sentence.words) for sentence in file.sentences]


def tags(file):
    return [list(sentence.tags) for sentence in file.sentences]


def test_columns_may_be_named_by_a_header():
    """Columns of several annotators; a header was the first word of the first sentence."""
    lines = ["word\tanna\tbo", "Ada\tB-PER\tO", "ran\tO\tO"]
    file = ConllFile(Origin("a.tsv"), lines, "anna")
    assert (file.sentences[0].words, file.sentences[0].tags, file.column) == (("Ada", "ran"), ("B-PER", "O"), "anna")
    assert file.with_tags(0, ["O", "O"]) == "word\tanna\tbo\nAda\tO\tO\nran\tO\tO"
    assert ConllFile(Origin("a.tsv"), lines[1:], "3").sentences[0].tags == ("O", "O")
    with pytest.raises(ValueError, match="or a name in its first row, got 'cy'"):
        ConllFile(Origin("a.tsv"), lines, "cy")


def lines_of(file, given):
    assert len(given) == len(file.sentences)
    pieces = [file.with_tags(number, tags) for number, tags in enumerate(given)]
    return [line for piece in pieces for line in piece.split("\n")]


def test_conllu_skips_comments_joined_and_empty_words():
    file = ConllFile(Origin("f"), CONLLU)
    assert file.conllu
    assert file.column == "upos"
    assert words(file) == [["I", "do", "n't", "."], ["#hash"]]
    assert tags(file) == [["PRON", "AUX", "PART", "PUNCT"], ["X"]]
    assert [sentence.lines for sentence in file.sentences] == [(3, 5, 6, 8), (11,)]


@pytest.mark.parametrize("column", ["xpos", "5"])
def test_the_column_can_be_named_or_numbered(column):
    file = ConllFile(Origin("f"), CONLLU, column)
    assert tags(file) == [["PRP", "VBP", "RB", "."], ["ADD"]]
    assert file.column == "xpos"


def test_conllu_is_written_back_with_nothing_changed_but_the_tags():
    file = ConllFile(Origin("f"), CONLLU)
    assert lines_of(file, tags(file)) == CONLLU
    changed = lines_of(file, [["A", "B", "C", "D"], ["E"]])
    differing = [number for number, pair in enumerate(zip(changed, CONLLU, strict=True), 1) if pair[0] != pair[1]]
    assert differing == [3, 5, 6, 8, 11]
    assert changed[4] == "2\tdo\tdo\tB\tVBP\t_\t0\troot\t_\t_"


@pytest.mark.parametrize(
    ("lines", "expected_words", "expected_tags"),
    [
        (["#tag\tO", "#\tB-X"], [["#tag", "#"]], [["O", "B-X"]]),  # a comment in CoNLL-U is a word elsewhere
        (["the DT B-NP", "dog NN I-NP"], [["the", "dog"]], [["B-NP", "I-NP"]]),
        (["a b\tX", "c\tY"], [["a b", "c"]], [["X", "Y"]]),
    ],
)
def test_other_files_have_words_first_and_tags_last(lines, expected_words, expected_tags):
    file = ConllFile(Origin("f"), lines)
    assert not file.conllu
    assert (words(file), tags(file)) == (expected_words, expected_tags)
    assert lines_of(file, expected_tags) == lines


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["# id 9 domain=en", "Bob _ _ X", "# _ _ X", "", "# id 8 domain=en", "# _ _ X"], [["Bob", "#"], ["#"]]),
        (["# a comment", "Bob\tX", "", "#\tX", "#tag\tX"], [["Bob"], ["#", "#tag"]]),
        (["#newdoc", "# text = a\tb", "Bob _ X"], [["Bob"]]),
    ],
)
def test_comments_before_a_sentence_are_no_words_and_stay(lines, expected):
    file = ConllFile(Origin("f"), lines)
    assert words(file) == expected
    assert lines_of(file, tags(file)) == lines


def test_columns_are_cut_at_blanks_and_tabs_alone():
    lines = ["10\N{NO-BREAK SPACE}000 M", "a\u2028b\x0bc  N"]
    assert words(ConllFile(Origin("f"), lines)) == [["10\N{NO-BREAK SPACE}000", "a\u2028b\x0bc"]]


def test_blank_lines_that_end_nothing_are_empty_sentences_and_stay():
    lines = ["", "a\tX", "", "", " ", "b\tY"]
    file = ConllFile(Origin("f"), lines)
    assert words(file) == [[], ["a"], [], [], ["b"]]
    assert [sentence.line for sentence in file.sentences] == [1, 2, 4, 5, 6]
    assert lines_of(file, tags(file)) == lines
    assert ConllFile(Origin("f"), []).sentences == []
    assert words(ConllFile(Origin("f"), ["", ""], tagged=False)) == [[], []]


def test_words_alone_get_a_column_where_no_tags_are_asked_for():
    file = ConllFile(Origin("f"), ["the", "dog", "", "barks"], tagged=False)
    assert lines_of(file, [["DET", "NOUN"], ["VERB"]]) == ["the\tDET", "dog\tNOUN", "", "barks\tVERB"]
    beyond = ConllFile(Origin("f"), ["the DT", "dog NN"], "3", tagged=False)
    assert lines_of(beyond, [["B", "I"]]) == ["the DT B", "dog NN I"]


def test_blanks_between_columns_and_lines_that_are_no_words_stay():
    lines = ["the  DT X ", " dog NN   X", "", "#", "# end of the file"]
    assert lines_of(ConllFile(Origin("f"), lines), [["A", "B"]]) == ["the  DT A ", " dog NN   B", *lines[2:]]
    for nothing in (["# a comment", "# another"], ["-DOCSTART- X", ""]):
        file = ConllFile(Origin("f"), nothing)
        assert (words(file), lines_of(file, [[]])) == ([[]], nothing)


@given(
    st.lists(
        st.lists(st.tuples(st.text("ab#1.-", min_size=1, max_size=4), st.sampled_from(["X", "B-Y"])), max_size=4),
        max_size=5,
    )
)
def test_whatever_is_written_is_read_back(sentences):
    lines = [line for sentence in sentences for line in [*("\t".join(pair) for pair in sentence), ""]]
    file = ConllFile(Origin("f"), lines)
    assert words(file) == [[word for word, _ in sentence] for sentence in sentences]
    assert tags(file) == [[tag for _, tag in sentence] for sentence in sentences]
    assert lines_of(file, tags(file)) == lines


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a\tX", "b"], {}, "f line 2: expected 2 columns as in the file's first row, got 1: 'b'"),
        (["a\tX", "b\t"], {}, r"f line 2: expected a tag in column 2, got ''"),
        (["a\tX", "\tY"], {}, "f line 2: expected a word in column 1"),
        (["a\t_"], {}, "f line 1: expected a tag in column 2, got '_'"),
        (["", "a"], {}, "f line 2: expected a word and its tag, got one column"),
        (["a\tX"], {"column": "upos"}, "f: column: expected a number from 2 to 2 .no CoNLL-U"),
        (["a\tX"], {"column": "3"}, "f: column: expected a number from 2 to 2"),
        (CONLLU, {"column": "form"}, "f: column: expected one of lemma, upos"),
        ([*CONLLU[:3], "x" + CONLLU[4][1:]], {}, "f line 4: expected the number of a word first"),
        (["a\tX", "", "b\tX", "c\tX", "d\tX"], {"max_length": 2}, "f line 3: a sentence of more than 2 words"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(lines, options, message):
    with pytest.raises(ValueError, match=message):
        ConllFile(Origin("f"), lines, **options)


def test_files_are_read_plain_or_compressed_with_any_line_ends(tmp_path):
    plain, packed = tmp_path / "a.conll", tmp_path / "a.conll.gz"
    plain.write_bytes("\ufeffé\tX\r\nb\tY\r\n".encode())
    packed.write_bytes(gzip.compress("é\tX\nb\tY".encode()))
    assert words(read_conll(plain)) == words(read_conll(packed)) == [["é", "b"]]


def test_what_is_no_text_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.conll").write_bytes(b"a\tX\n\xff\tY\n")
    with pytest.raises(ValueError, match=r"bad\.conll line 2: expected UTF-8"):
        read_conll(tmp_path / "bad.conll")
    (tmp_path / "cut.conll.gz").write_bytes(gzip.compress(b"a\tX\n" * 100)[:-9])
    with pytest.raises(ValueError, match=r"cut\.conll\.gz: cannot be read"):
        read_conll(tmp_path / "cut.conll.gz")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_conll(tmp_path / "none")


def test_a_line_that_begins_a_document_is_no_sentence():
    lines = ["-DOCSTART- -X- O O", "", "EU NNP B O", "", "-DOCSTART- -X- O O", "", "Peter NNP B P", "said VBD O O"]
    file = ConllFile(Origin("f"), lines)
    assert words(file) == [["EU"], ["Peter", "said"]]
    assert lines_of(file, [["A"], ["B", "C"]])[::2] == [lines[0], "EU NNP B A", lines[4], "Peter NNP B B"]
    assert words(ConllFile(Origin("f"), ["-DOCSTART-", "", "a X", "", "", "b Y"])) == [["a"], [], ["b"]]


def test_a_nul_byte_and_a_damaged_archive_are_refused(tmp_path):
    (tmp_path / "nul.txt").write_bytes(b"a X\nb\0 Y\n")
    with pytest.raises(ValueError, match="line 2: expected text, got a NUL byte"):
        read_conll(tmp_path / "nul.txt")
    packed = bytearray(gzip.compress(b"".join(b"word%d X\n" % n for n in range(999))))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "flipped.txt.gz").write_bytes(packed)
    with pytest.raises(ValueError, match=r"flipped\.txt\.gz: cannot be read"):
        read_conll(tmp_path / "flipped.txt.gz")

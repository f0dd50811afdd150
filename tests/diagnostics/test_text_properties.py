import re

import pytest

from chainrule_app.pages.text_properties import PROPERTIES, TextProperty, choose_property, text_property


def characters(text: str) -> list[tuple[int, int]]:
    return [(place, place + 1) for place in range(len(text))]


def marked(name: str, text: str) -> str:
    """The characters that have a property."""
    has = text_property(name).of(text, characters(text))
    return "".join(character if value else "." for character, value in zip(text, has, strict=True))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("quotes", 'a "bc" d', '.."bc...'),  # the state that has read the closing mark is outside again
        ("quotes", 'k]"  a "b"', '......."b.'),  # a mark that closes what stands before the row opens nothing
        ("quotes", "a “b” c", "..“b..."),
        ("parentheses", "f(a, b) c", ".(a, b..."),
        ("brackets", "x[1:2]", ".[1:2."),
        ("indentation", "a\n  b c", "..  ..."),
        ("upper-case", "aBÉ", ".BÉ"),
        ("word-start", "ab cd", "a..c."),
        ("word-end", "ab cd", ".b..d"),
        ("line-start", "ab\ncd", "a..c."),
        ("line-end", "ab\ncd", "..\n.."),
        ("punctuation", "a, b!", ".,..!"),
        ("vowel", "Abe", "A.e"),
        ("digit", "a1²", ".1."),
        ("space", "a b\n", ". .\n"),
        ("late-in-line", "x" * 42 + "\ny", "." * 40 + "xx.."),
    ],
)
def test_what_a_name_means(name, text, expected):
    assert marked(name, text) == expected


def test_every_name_has_a_case_above():
    cases = {case[0] for case in test_what_a_name_means.pytestmark[0].args[1]}
    assert cases == set(PROPERTIES)


def test_an_element_has_it_where_any_of_its_characters_does():
    words = [(0, 2), (3, 6)]
    assert text_property("upper-case").of("ab cDe", words) == [False, True]
    assert text_property("x*").of("ab cDe", words) == [False, False]  # an empty match is none


def test_a_group_named_here_counts_alone():
    assert text_property(r"a(?P<here>b)|(?P<here2>c)").of("abc", characters("abc")) == [False, True, True]


def test_what_is_neither_a_name_nor_an_expression_is_refused():
    with pytest.raises(ValueError, match=r"property: expected one of quotes.*got '\('"):
        text_property("(")


def test_a_property_is_chosen_that_elements_have_and_lack():
    text = "f(abc) and some more of it"
    assert choose_property([(text, characters(text))]).name == "parentheses"
    assert choose_property([("aaaa", characters("aaaa")), ("bbbb", characters("bbbb"))]).name == "word-start"
    assert choose_property([("1", characters("1"))]) is None
    assert choose_property([]) is None


def test_a_rare_property_is_chosen_where_there_is_no_other():
    text = "," * 99 + "x"
    found = choose_property([(text, characters(text))])
    assert isinstance(found, TextProperty)
    assert found.pattern == re.compile(PROPERTIES[found.name][0])

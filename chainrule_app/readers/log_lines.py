"""Lines of logs: recognise a text as a log, and find the fields of a line that differ from line to line."""

import re
from collections.abc import Iterator

_DATE = r"\d{4}[-/.]\d\d[-/.]\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,:]\d+)?"
_ZONE = r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = "|".join(
    (
        rf"{_DATE}[T _-]{_CLOCK}{_ZONE}",  # 2026-03-02T04:05:06.789Z
        rf"\d\d?/{_MONTH}/\d{{4}}:{_CLOCK}{_ZONE}",  # 02/Mar/2026:04:05:06 +0000
        rf"(?:[A-Z][a-z]{{2}},? )?{_MONTH} [ \d]\d(?: \d{{4}})? {_CLOCK}(?: \d{{4}}\b)?",  # Mar  2 04:05:06
        r"\d{6} \d{6}\b|\d{10}\.\d{3,9}\b|\b1\d{12}\b",  # 081109 203615, seconds or milliseconds since 1970
        rf"{_DATE}|\b{_CLOCK}",
    )
)
_ADDRESS = r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\b(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F:]{1,4}"
_UUID = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
_HEXADECIMAL = r"\b(?:0x)?(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b"
_LETTERS = "A-Za-z0-9+/_-"
_KEY = (  # base64 and the like
    rf"(?<![{_LETTERS}])(?=[{_LETTERS}]*\d)(?=[{_LETTERS}]*[A-Z])(?=[{_LETTERS}]*[a-z])[{_LETTERS}]{{20,}}={{0,2}}"
)
_NUMBER = r"\d+(?:\.\d+)?"
_FIELD = re.compile("|".join((_TIME, _ADDRESS, _UUID, _HEXADECIMAL, _KEY, _NUMBER)))
_BEGINS_WITH_TIME = re.compile(_TIME)
_LOOKED_AT = 160  # characters of a line among which its time begins
_FEWEST_LINES = 20
_SHARE = 0.8  # of the lines: a message may go on over several


def is_log(text: str) -> bool:
    r"""Tell if the beginning of a text is a log: nearly all of its lines have a time near their beginning.

    >>> is_log("2026-03-02 04:05:06 INFO started\n" * 20), is_log("To be, or not to be\n" * 20)
    (True, False)
    """
    lines = [line for line in text.split("\n")[:-1] if line.strip()]  # the last one may be cut
    timed = sum(_BEGINS_WITH_TIME.search(line, 0, _LOOKED_AT) is not None for line in lines)
    return len(lines) >= _FEWEST_LINES and timed >= _SHARE * len(lines)


def fields_of(line: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each number, address, time and identifier in a line.

    >>> line = "Mar  2 04:05:06 sshd[812]: 10.0.0.7 port 22"
    >>> [line[start:stop] for start, stop in fields_of(line)]
    ['Mar  2 04:05:06', '812', '10.0.0.7', '22']
    """
    return (match.span() for match in _FIELD.finditer(line))


def template_of(line: str) -> str:
    """Return a line with a star for each of its fields.

    >>> template_of("Mar  2 04:05:06 sshd[812]: 10.0.0.7 port 22")
    '* sshd[*]: * port *'
    """
    return _FIELD.sub("*", line)

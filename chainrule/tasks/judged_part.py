"""How much of the held-out data a judgement is of."""


def judged_part(rows: int, all_rows: int) -> str:
    """The words before "held-out sentences".

    >>> judged_part(64, 1014), judged_part(872, 872)
    ('64 of the 1,014 ', 'the ')
    """
    return "the " if rows >= all_rows else f"{rows:,} of the {all_rows:,} "

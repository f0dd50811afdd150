"""How much of the held-out data a metric is of."""


def measured_part(rows: int, all_rows: int) -> str:
    """The words before "held-out sentences".

    >>> measured_part(64, 1014), measured_part(872, 872)
    ('64 of the 1,014 ', 'the ')
    """
    return "the " if rows >= all_rows else f"{rows:,} of the {all_rows:,} "

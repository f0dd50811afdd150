from time import monotonic

from chainrule.cli.train import note_start, take_start


def test_the_start_of_a_command_is_taken_once_and_later_ones_begin_when_they_ask():
    before = monotonic()
    note_start()
    noted = monotonic()
    while monotonic() == noted:  # until the clock has moved
        pass
    assert before <= take_start() <= noted
    assert take_start() > noted

"""`import chainrule` shows the whole library and imports none of it."""

import subprocess
import sys
from operator import attrgetter

import pytest

import chainrule

PARTS = ("models", "layers", "heads", "decoding", "diagnostics", "data", "testing", "training")


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_reached_from_the_package_and_listed(name):
    part = getattr(chainrule, name)
    assert part.__name__ == f"chainrule.{name}"
    assert name in dir(chainrule)
    assert part.__doc__


def test_every_name_that_is_listed_is_there():
    assert set(dir(chainrule)) == set(chainrule.__all__)
    for name in dir(chainrule):
        assert getattr(chainrule, name) is not None


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'chainrule' has no attribute 'modles'"):
        attrgetter("modles")(chainrule)


def test_the_import_alone_loads_nothing_and_a_part_comes_when_it_is_asked_for():
    code = (
        "import sys, chainrule\n"
        "assert 'torch' not in sys.modules and 'chainrule.models' not in sys.modules\n"
        "dir(chainrule)\n"
        "assert 'torch' not in sys.modules\n"
        "assert chainrule.models.RecurrentLM is sys.modules['chainrule.models'].RecurrentLM\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

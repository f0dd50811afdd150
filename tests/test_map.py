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


FRESH = """
import sys, chainrule
heavy = {"torch", "numpy", "chainrule.models"}
assert not heavy & sys.modules.keys()
assert {"fit", "load", "Run", "from_logits", "testing"} <= set(dir(chainrule))
chainrule.__version__
assert not heavy & sys.modules.keys()
import chainrule.models, chainrule.data, chainrule.training, chainrule.layers
assert not {"torch", "chainrule.data._batches"} & sys.modules.keys()
from chainrule.data import Batch
assert "torch" in sys.modules and Batch.__module__ == "chainrule.data._batches"
assert callable(chainrule.testing.check) and callable(chainrule.from_logits)
assert chainrule.models.RecurrentLM is sys.modules["chainrule.models"].RecurrentLM
"""


def test_the_import_alone_loads_nothing_and_a_part_comes_when_it_is_asked_for():
    subprocess.run([sys.executable, "-c", FRESH], check=True)

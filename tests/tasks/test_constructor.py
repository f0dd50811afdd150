"""The arguments of a constructor are read from its source as Python itself has them."""

from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Literal, Unpack, get_args, get_origin, get_type_hints

import pytest
from torch import nn

from chainrule import models
from chainrule_app.tasks.model import REQUIRED, Model, argument_help, constructor_arguments


def imported_arguments(model_class):
    """Annotation and default of each argument, of the imported class."""
    hints = get_type_hints(model_class.__init__, include_extras=True)
    for name, parameter in signature(model_class).parameters.items():
        if get_origin(hints[name]) is Unpack:
            (keys,) = get_args(hints[name])
            for key, hint in get_type_hints(keys, include_extras=True).items():
                yield key, hint, getattr(model_class, key)
        else:
            yield name, hints[name], REQUIRED if parameter.default is Parameter.empty else parameter.default


def is_plain(hint):
    if get_origin(hint) is Annotated:
        return is_plain(get_args(hint)[0])
    if isinstance(hint, UnionType):
        return all(map(is_plain, get_args(hint)))
    return hint in (int, float, bool, str, NoneType) or get_origin(hint) is Literal


def is_model(name):
    member = getattr(models, name)
    return isinstance(member, type) and issubclass(member, nn.Module)


@pytest.mark.parametrize("name", list(filter(is_model, models.__all__)))
def test_arguments_read_from_the_source_are_those_of_the_imported_class(name):
    model_class = getattr(models, name)
    expected = list(imported_arguments(model_class))
    found = constructor_arguments("chainrule.models", name)
    assert list(found) == [argument for argument, _, _ in expected]
    for argument, hint, default in expected:
        assert found[argument].default == default
        assert found[argument].hint == hint or (found[argument].hint is None and not is_plain(hint))


def test_invalid_names_raise():
    with pytest.raises(TypeError, match=r"chainrule\.models: expected a class WaveNt, found none: export it there"):
        constructor_arguments("chainrule.models", "WaveNt")
    with pytest.raises(TypeError, match="WaveNet has no argument chanels"):
        _ = Model("WaveNet", chanels=3).options


def test_the_help_of_several_arguments_goes_to_each_and_lines_are_joined():
    docstring = """A model.

    Args:
        first, second: sizes of
            both: in units.
        ε: of the objective.
        third: :math:`x_t` or `x`.

    Raises:
        fourth: no argument.
    """
    assert argument_help(docstring) == {
        "first": "Sizes of both: in units.",
        "second": "Sizes of both: in units.",
        "ε": "Of the objective.",
        "third": "x_t or x.",
    }

"""The options of every model are arguments of its constructor: types, ranges and defaults agree."""

from dataclasses import fields
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, Unpack, get_args, get_origin, get_type_hints

import pytest

from chainrule_app.tasks import TASKS, task_class

# Arguments that come from the data, or mean nothing to the task or the model.
NO_OPTIONS = {
    "levels",
    "num_classes",
    "num_features",
    "num_characters",
    "vocab_size",
    "feature_size",
    "ngram_symbols",
    "several",
    "anchor",
    "num_covariates",
}
WITHOUT = {
    ("text", "lstm"): {"reset_after", "nonlinearity"},
    ("text", "gru"): {"nonlinearity"},
    ("text", "rnn"): {"reset_after"},
    ("text", "linear-transformer"): {"num_kv_heads", "position", "window", "context_length"},
    ("text", "min-gru"): {"num_kv_heads", "position", "window", "context_length", "num_heads"},
    ("tag", "tagger"): {"num_heads"},
    ("classify", "classifier"): {"num_heads"},
    ("classify", "transformer"): {"bidirectional"},
}
# Defaults that a task chooses itself.
BLOCKS = {"num_layers": 6, "ngram_order": 4}
DEFAULTS = {
    ("text", "transformer"): BLOCKS | {"context_length": 64},
    ("text", "linear-transformer"): BLOCKS,
    ("text", "min-gru"): BLOCKS,
    ("music", "rnn-made"): {"dropout": 0.3},
    ("tag", "transformer"): {"num_layers": 2},
    ("classify", "classifier"): {"tfidf": True},
    ("classify", "transformer"): {"num_layers": 2, "tfidf": True},
    ("translate", "transformer"): {"model_size": 192, "feed_forward_size": 384},
}
MODELS = [(task, name) for task in TASKS for name in task_class(task).MODELS]


def arguments(model_class):
    """Yield name, annotation and default of each argument of a constructor, those behind `**options` too."""
    hints = get_type_hints(model_class.__init__, include_extras=True)
    for name, parameter in signature(model_class).parameters.items():
        if get_origin(hints[name]) is Unpack:
            (keys,) = get_args(hints[name])
            for key, hint in get_type_hints(keys, include_extras=True).items():
                yield key, hint, getattr(model_class, key)
        else:
            yield name, hints[name], parameter.default


def is_option(hint, default):
    """Tell if an argument may be an option: a number, a text, a choice or a truth value, with a default."""
    if get_origin(hint) is Annotated:
        return is_option(get_args(hint)[0], default)
    if get_origin(hint) in (UnionType, Union):
        return all(is_option(part, default) for part in get_args(hint))
    return default is not Parameter.empty and (hint in (int, float, bool, str, NoneType) or get_origin(hint) is Literal)


@pytest.mark.parametrize(("task", "name"), MODELS)
def test_options_are_the_arguments_of_the_constructor(task, name):
    model = task_class(task).MODELS[name]
    spared = NO_OPTIONS | WITHOUT.get((task, name), set()) | model.fixed.keys()
    expected = {
        argument: (hint, default)
        for argument, hint, default in arguments(model.model_class)
        if argument not in spared and is_option(hint, default)
    }
    hints = get_type_hints(model.options, include_extras=True)
    options = {item.name: (hints[item.name], item.default) for item in fields(model.options)}
    assert model.members == ("num_members" in options)
    options.pop("num_members", None)
    own = DEFAULTS.get((task, name), {})
    for option in model.planned:
        if option in expected:
            hint, default = expected[option]
            expected[option] = (hint | None, None)
    for option, default in own.items():
        assert expected[option][1] != default
        expected[option] = (expected[option][0], default)
    assert options == expected

"""A verb's signature for one task: the options that every task has, and the task's own."""

from dataclasses import field, fields
from inspect import cleandoc
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from chainrule.tasks.commands import Verb
from chainrule.tasks.config import options_class
from chainrule.tasks.model import argument_help


def _refuse_flag(_: Any, value: str | None) -> None:
    if value is not None and value.startswith("-") and value != "-":
        raise ValueError(f"There is no flag {value}; a file of that name is written ./{value}")


Input = Annotated[str, Parameter(allow_leading_hyphen=True, validator=_refuse_flag)]
"""A path, or - for standard input; another word with a hyphen before it is a flag that the verb lacks."""


def with_options(verb: Any, options: type, **more: type) -> Verb:
    """The verb with dataclasses of options in place of its parameters `options` and `more`.

    Its help is the docstring of `options`; the arguments that are in that docstring's Args are described by it.

    Args:
        verb: a function with keyword parameters of these names; its own docstring has an Args section.
        options: the class of its parameter `options`.
        more: the classes of others.
    """
    classes = {"options": options} | more
    verb.__annotations__ = dict(verb.__annotations__) | {
        name: Annotated[described(made), Parameter(name="*")] for name, made in classes.items()
    }
    verb.__kwdefaults__ = (verb.__kwdefaults__ or {}) | {name: made() for name, made in classes.items()}
    verb.__doc__ = joined_help(options.__doc__ or "", verb.__doc__ or "")
    return verb


def joined_help(own: str, common: str) -> str:
    """A docstring with the words of `own` and the arguments of both, those of `own` first where both have one.

    >>> print(joined_help("Score pictures.", '''Score.
    ...
    ...     Args:
    ...         data: The data.
    ...     '''))
    Score pictures.
    <BLANKLINE>
    Args:
        data: The data.
    """
    helps = argument_help(common) | argument_help(own)
    lines = [f"    {name}: {text}" for name, text in helps.items()]
    words = cleandoc(own).partition("\nArgs:\n")[0].strip()
    paragraphs = [" ".join(paragraph.split()) for paragraph in words.split("\n\n")]
    return "\n\n".join(paragraphs) + "\n\nArgs:\n" + "\n".join(lines)


def described(options: type) -> type:
    """A dataclass whose fields have `help` in their metadata, as the parser reads it; any other as it is."""
    if not any("help" in item.metadata for item in fields(options)):
        return options
    hints = get_type_hints(options, include_extras=True)
    made = [
        (item.name, Annotated[hints[item.name], Parameter(help=item.metadata.get("help", ""))], _copied(item))
        for item in fields(options)
    ]
    return options_class(options.__name__, made, options)


def grouped(options: type, group: Group) -> Any:
    """The annotation of a parameter whose fields are flags of a group."""
    return Annotated[described(options), Parameter(name="*", group=group)]


def _copied(item: Any) -> Any:
    return field(default=item.default, metadata=dict(item.metadata))

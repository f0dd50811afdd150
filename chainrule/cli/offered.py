"""A verb of the tasks that have an ability: it opens the run and takes the task's options."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule.cli.signature import as_flags, joined_help
from chainrule.tasks.display import Verb
from chainrule.tasks.task import Task

Device = Annotated[str, Parameter(help="Where to compute: auto, cpu or cuda.")]
_RUN = Annotated[Path, Parameter(help="The run directory.")]


@dataclass(frozen=True)
class Offered:
    """A verb, whatever the task.

    Args:
        body: the function that does it. Its argument `run` is the opened run, where the verb takes a path; its argument
            `options`, if it has one, is an instance of the task's class, where the verb has a flag for each field.
        ability: that a task needs for the verb.
        options: the attribute of the task that is the class of its options; empty if there are none.
    """

    body: Callable[..., int | None]
    ability: type
    options: str

    def __call__(self, task: type[Task[Any]], **annotations: Any) -> Verb | None:
        """The verb for a task; None where the task lacks the ability.

        Args:
            task: its class.
            annotations: of arguments, in place of those of `body`.
        """
        if not issubclass(task, self.ability):
            return None
        arguments, doc = dict(signature(self.body).parameters), self.body.__doc__
        run = arguments["run"]
        annotations["run"] = _RUN if run.default is run.empty else Path | None
        if self.options:
            options = getattr(task, self.options)
            doc = joined_help(options.__doc__ or "", doc or "")
            annotations["options"] = as_flags(options)
            arguments["options"] = arguments["options"].replace(default=options())
        for name, annotation in annotations.items():
            arguments[name] = arguments[name].replace(annotation=annotation)
        shape = Signature(list(arguments.values()))

        def verb(*words: Any, **flags: Any) -> int | None:
            given = shape.bind(*words, **flags)
            given.apply_defaults()
            if given.arguments["run"] is not None:
                given.arguments["run"] = task.open(given.arguments["run"])
            return self.body(*given.args, **given.kwargs)

        made: Any = verb  # a function may have a signature, but its type knows none
        made.__signature__, made.__annotations__, made.__doc__ = shape, {}, doc
        return verb


def offered(ability: type, options: str = "") -> Callable[[Callable[..., int | None]], Offered]:
    """A decorator that makes an `Offered` of a function."""
    return lambda body: Offered(body, ability, options)

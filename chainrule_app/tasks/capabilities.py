"""The methods of a task: one that is defined gives the task a verb, and its runs a method of `chainrule.Run`.

    score(data, options, *, device)             -> Result, a row per row, line or file, ranked by surprise
    sample(n, options, *, seed, device)         -> Result, n rows
    pieces(options, *, seed, device)            -> Result, one text in pieces, a row each; None where it has none
    predict([data, ...], options, *, device)    -> Result, a row per input; the verb has the name of the task
    fill(data, options, *, device)              -> Result, the rows of a table with their gaps filled
    evaluate(data, options, *, device)          -> Result, whose summary has all figures
    embed(data, options, *, device)             -> Result: the columns input, label if known, and code
    reconstruct(data, options, *, seed, device) -> Result, images and their reconstructions, alternating
    interpolate(ends, options, *, seed, device) -> Result, the images between two, including the ends
    inspect(data, options, *, seed)             -> Report
    codec()                                     -> FileCodec, for `chainrule compress`

`options` are an instance of a dataclass: its docstring is the help of the verb for that task, its fields are the flags
of the verb and the keyword arguments of the method of `chainrule.Run`. The class of a run declares both in a line:
`Scoring, score = verbs.TableScoring, verbs.score_table`. A method returns data: it formats nothing, prints nothing and
writes no file. Its other arguments have the same meaning in all of them:

- `data`: a path; "-" is standard input where the task reads one. A text run scores and embeds lists of texts too.
  `evaluate` and `inspect` get None where the user named none, and so does `predict` of a task that `continues`.
- `seed`: seed of all draws.
- `device`: auto, cpu, cuda or mps.

They raise ValueError or OSError for unreadable data and for requests that the model does not support.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule_app.heavy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import TrainableModel
    from chainrule.coding import RowLayout
    from chainrule.state import State
    from chainrule.testing import Report as Contract


@dataclass(frozen=True)
class EncodedFile:
    """A file encoded as elements of a model, and the rest that these cannot express."""

    layout: dict[str, Any]  # sizes required for decoding, as JSON
    side: bytes  # bytes that the elements cannot express
    laid: "RowLayout"
    elements: int
    unit: str  # name of an element, such as "character"
    instead: bytes | None = None  # bytes that FileCodec.restore returns, if not those of the file
    note: str = ""  # remark on `instead` or `side`


class FileCodec(ABC):
    """Conversion of a file to elements of a run's model, and back."""

    @abstractmethod
    def express(self, data: bytes) -> EncodedFile:
        """Encode a file."""

    @abstractmethod
    def lay_out(self, layout: dict[str, Any], elements: Any = None) -> "RowLayout":
        """Lay out rows as `express` did; without their elements if none are passed."""

    @abstractmethod
    def restore(self, layout: dict[str, Any], side: bytes, elements: "Sequence[Tensor]", most: int) -> bytes:
        """Decode the file byte for byte."""

    def finish(self, layout: dict[str, Any], data: bytes) -> bytes:
        """Convert a decoded file to the file to write."""
        return data


@dataclass(frozen=True)
class CheckedRows:
    """Rows on which `chainrule check` tests a model."""

    model: "TrainableModel"  # the trained model, or a smaller one with its weights
    x: "Tensor"  # modelled values, batch first
    context: "State" = None
    lengths: "Tensor | None" = None  # (B,) real elements of each row
    note: str = ""  # description of the rows


class Checks:
    """`chainrule check RUN`: tests of the model on rows of its data."""

    CHECKED: ClassVar[tuple[int, int | None]] = (4, None)  # held-out rows to check, and elements of each, if not all

    def checked_rows(self) -> CheckedRows:
        """Return the beginnings of a few held-out rows, and the model."""
        from chainrule.state import map_state

        run: Any = self
        rows, elements = self.CHECKED
        batch = next(iter(run.batches((0, 1))[1]()))
        context = map_state(lambda leaf: leaf[:rows], batch.context)
        if elements is None:
            return CheckedRows(run.model(), batch.x[:rows], context)
        lengths = None if batch.lengths is None else batch.lengths[:rows].clamp(max=elements)
        return CheckedRows(run.model(), batch.x[:rows, :elements], context, lengths)

    def check(self, *, seed: int) -> "Contract":
        """Check the whole model, all parts of a recipe together."""
        from chainrule import LatentModel, LikelihoodModel
        from chainrule.testing import check_model

        run: Any = self
        rows = self.checked_rows()
        if not isinstance(rows.model, LikelihoodModel | LatentModel):
            raise ValueError(f"check: a run of {run.config.model} has neither a likelihood nor a bound to check")
        with torch.random.fork_rng(devices=[]):
            report = check_model(rows.model, rows.x, rows.context, rows.lengths, seed=seed)
        whole = f"{run.recipe}, all parts together" if run.recipe != run.architecture else ""
        return replace(report, subject="; ".join(filter(None, [whole, rows.note])))


OPTIONS = {
    "sample": "Sampling",
    "score": "Scoring",
    "predict": "Prediction",
    "fill": "Filling",
    "evaluate": "Evaluation",
    "embed": "Embedding",
    "reconstruct": "Reconstruction",
    "interpolate": "Interpolation",
    "inspect": "Inspection",
}
"""The attribute of a task with the dataclass of a method's options."""

PREDICTIONS = ("tag", "classify", "translate", "caption", "forecast")
METHODS = {
    **{name: name for name in OPTIONS},
    "stream": "pieces",
    **dict.fromkeys(PREDICTIONS, "predict"),
    "compress": "codec",
    "decompress": "codec",
    "check": "check",
}
"""The method of a task behind each method of `chainrule.Run`."""

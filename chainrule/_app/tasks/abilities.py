"""Abilities that a task may have: a verb of the command line is offered where the task has the verb's ability.

Each ability has a dataclass of its options and a method. The docstring of the dataclass is the verb's help for that
task, its fields are the flags of the verb and the keyword arguments of the method of `chainrule.Run`. A task declares
both in a line: `Scoring, score = TableScoring, score_table`. The method returns data, a `chainrule.Result` or
`Report`: it formats nothing, prints nothing and writes no file.

Arguments of the methods have the same meaning in all of them:

- `data`: a path; "-" is standard input where the task reads one. A text run scores and embeds lists of texts too.
- `options`: an instance of the ability's dataclass.
- `seed`: of all that is drawn; the same seed gives the same.
- `device`: auto, cpu, cuda or mps.

They raise ValueError or OSError for data that cannot be read and for a model that cannot do what is asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule._app.results import Report, Result

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.bundle import Bundle
    from chainrule._app.tasks.ledger import Basis
    from chainrule._base import Context, TrainableModel
    from chainrule.coding._batches import RowLayout
    from chainrule.testing import Report as Contract


class Measured(ABC):
    """Base of abilities that report figures, with the unit and the way of their measurement."""

    @property
    @abstractmethod
    def basis(self) -> "Basis":
        """Unit and measurement of its figures."""


class Scores(Measured):
    """Has a likelihood, or a bound of it: `chainrule score RUN DATA`."""

    Scoring: ClassVar[type]

    @abstractmethod
    def score(self, data: str, options: Any, /, *, device: str) -> Result:
        """Score data: rows for its rows, lines or files, with a rank by surprise and their likelihood."""


class Samples(ABC):
    """Draws new data: `chainrule sample RUN`.

    Attributes:
        Sampling: the options.
        USUAL_NUMBER: how many are drawn by default.
        FILES: the endings of the names of files that samples can be written to; empty if any will do.
    """

    Sampling: ClassVar[type]
    USUAL_NUMBER: ClassVar[int] = 1
    FILES: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def sample(self, n: int, options: Any, /, *, seed: int, device: str) -> Result:
        """Draw n of them."""

    def pieces(self, options: Any, /, *, seed: int, device: str) -> Result | None:
        """One sample as text in pieces, a row for each as it is drawn; None for data that are not drawn in pieces."""
        return None


class Predicts(ABC):
    """Answers for data: the verb is the name of the task, such as `chainrule tag RUN FILE`.

    Attributes:
        Prediction: the options.
        verb: the name of the verb, where it is not that of the task.
        several: whether it takes more than one file.
        PLOTS: the endings of the names of files for a picture of its answers; empty if there are none.
    """

    Prediction: ClassVar[type]
    verb: ClassVar[str] = ""
    several: ClassVar[bool] = False
    PLOTS: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def predict(self, data: list[str], options: Any, /, *, device: str) -> Result:
        """Predict: a row for each input."""


class Embeds(ABC):
    """Embeds inputs as vectors: `chainrule embed RUN DATA`."""

    Embedding: ClassVar[type]

    @abstractmethod
    def embed(self, data: str, options: Any, /, *, device: str) -> Result:
        """The vector of each input in order: the columns input, label where it is known, and code."""


class Evaluates(Measured):
    """Compares its predictions with the right ones: `chainrule evaluate RUN DATA`."""

    Evaluation: ClassVar[type]

    @abstractmethod
    def evaluate(self, data: str | None, options: Any, /, *, device: str) -> Result:
        """Evaluate: the summary has all figures; `data` is None where the options name the files."""


@dataclass(frozen=True)
class Expressed:
    """Files encoded as elements of a model, and the rest that these cannot express.

    Args:
        layout: the sizes that reading needs, for JSON.
        side: the bytes of everything that the elements cannot express.
        laid: the elements.
        elements: how many they are.
        unit: the name of one, such as "character".
        instead: result of `FileCodec.restore`, where it is not the bytes of the files.
        note: a line about that, or about bits that the model knows nothing of.
    """

    layout: dict[str, Any]
    side: bytes
    laid: "RowLayout"
    elements: int
    unit: str
    instead: bytes | None = None
    note: str = ""


class FileCodec(ABC):
    """Files in the elements of a run's model, and back."""

    @abstractmethod
    def express(self, files: "Mapping[str, bytes]") -> Expressed:
        """Files as elements of the model, by name and in order."""

    def ready(self, model: Any, layout: dict[str, Any]) -> Any:
        """The model in the form in which it codes such files: as it is, unless a codec says otherwise."""
        return model

    @abstractmethod
    def lay_out(self, layout: dict[str, Any], elements: Any = None) -> "RowLayout":
        """The rows that `express` laid out; without their elements where none are given."""

    @abstractmethod
    def restore(
        self, layout: dict[str, Any], side: bytes | None, elements: "Sequence[Tensor]", lost: set[int], most: int
    ) -> bytes:
        """The files, one after the other, byte for byte; what can be saved of them where rows are lost.

        Args:
            layout: of `express`.
            side: of `express`; `None` where it is lost.
            elements: of each batch, laid out as the model reads them.
            lost: numbers of the rows of each batch that are lost.
            most: bytes that `side` may unpack to.
        """

    def finish(self, layout: dict[str, Any], bundle: "Bundle") -> "Bundle":
        """The files to write, of what `restore` gave: the same, unless a codec restores something else than bytes."""
        return bundle


class Compresses(ABC):
    """Writes files with its model in −log₂ p bits: `chainrule compress FILE --run RUN`."""

    @abstractmethod
    def codec(self) -> FileCodec:
        """The link between files and the model."""


@dataclass(frozen=True)
class CheckedRows:
    """Rows on which `chainrule check` looks at a model.

    Args:
        model: the trained one, or a smaller one with its weights.
        x: the modelled values, batch first.
        context: its condition.
        lengths: (B,) real elements of each row.
        note: a line that says what is looked at.
    """

    model: "TrainableModel"
    x: "Tensor"
    context: "Context" = None
    lengths: "Tensor | None" = None
    note: str = ""


class Checks(ABC):
    """Has rows to check the model on: `chainrule check RUN`."""

    @abstractmethod
    def checked_rows(self) -> CheckedRows:
        """A few rows of the run's own data."""

    def check(self, *, seed: int) -> "Contract":
        """Check the model, all parts of a recipe together, on those rows.

        Raises:
            ValueError: it has no likelihood, and no bound of one.
        """
        import torch

        from chainrule._base import LikelihoodModel
        from chainrule._latent import LatentModel
        from chainrule.testing import check_model

        run: Any = self
        rows = self.checked_rows()
        if not isinstance(rows.model, LikelihoodModel | LatentModel):
            raise ValueError(f"check: a run of {run.config.model} has no likelihood, and no bound of one, to check")
        with torch.random.fork_rng(devices=[]):
            report = check_model(rows.model, rows.x, rows.context, rows.lengths, seed=seed)
        whole = f"{run.recipe}, all parts together" if run.recipe != run.architecture else ""
        return replace(report, subject="; ".join(filter(None, [whole, rows.note])))


class Inspects(ABC):
    """Can be looked into: `chainrule inspect RUN`.

    Attributes:
        Inspection: the options.
        writes_page: whether there is a page, which --out names.
    """

    Inspection: ClassVar[type]
    writes_page: ClassVar[bool] = True

    @abstractmethod
    def inspect(self, data: str | None, options: Any, /, *, seed: int) -> Report:
        """Inspect held-out data, or `data`."""


class Reconstructs(ABC):
    """Encodes data and decodes the codes: `chainrule reconstruct RUN DATA`."""

    Reconstruction: ClassVar[type]

    @abstractmethod
    def reconstruct(self, data: str, options: Any, /, *, seed: int, device: str) -> Result:
        """Images and their reconstructions, one after the other."""


class Interpolates(ABC):
    """Decodes the codes between those of two inputs: `chainrule interpolate RUN A B`."""

    Interpolation: ClassVar[type]

    @abstractmethod
    def interpolate(self, ends: tuple[str, str], options: Any, /, *, seed: int, device: str) -> Result:
        """The images between two, the ends among them."""


OPTIONS: dict[type, str] = {
    Samples: "Sampling",
    Scores: "Scoring",
    Predicts: "Prediction",
    Evaluates: "Evaluation",
    Embeds: "Embedding",
    Reconstructs: "Reconstruction",
    Interpolates: "Interpolation",
    Inspects: "Inspection",
}
"""The attribute of a task that is the class of the options of an ability."""

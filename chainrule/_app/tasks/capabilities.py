"""Capabilities of tasks: a verb of the command line exists for the tasks that have its capability.

Each capability has a dataclass of its options and a method. The docstring of the dataclass is the verb's help for that
task, its fields are the flags of the verb and the keyword arguments of the method of `chainrule.Run`. A task declares
both in a line: `Scoring, score = verbs.TableScoring, verbs.score_table`. The method returns data, a `chainrule.Result`
or `Report`: it formats nothing, prints nothing and writes no file.

Arguments of the methods have the same meaning in all of them:

- `data`: a path; "-" is standard input where the task reads one. A text run scores and embeds lists of texts too.
- `options`: an instance of the capability's dataclass.
- `seed`: seed of all draws.
- `device`: auto, cpu, cuda or mps.

They raise ValueError or OSError for unreadable data and for requests that the model does not support.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from chainrule._app.heavy import torch
from chainrule._app.results import Report, Result

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.bundle import Bundle
    from chainrule._app.tasks.likelihood_record import Basis
    from chainrule._base import Context, TrainableModel
    from chainrule.coding._batches import RowLayout
    from chainrule.testing import Report as Contract


class Measured(ABC):
    """Base of capabilities that report figures with a unit and a way of measurement."""

    @property
    @abstractmethod
    def basis(self) -> "Basis":
        """Unit and measurement of its figures."""


class Scores(Measured):
    """Capability to compute a likelihood, or a bound: `chainrule score RUN DATA`."""

    Scoring: ClassVar[type]

    @abstractmethod
    def score(self, data: str, options: Any, /, *, device: str) -> Result:
        """Score data: one row per row, line or file, ranked by surprise."""


class Samples(ABC):
    """Capability to draw new data: `chainrule sample RUN`."""

    Sampling: ClassVar[type]
    DEFAULT_NUMBER: ClassVar[int] = 1
    FILES: ClassVar[tuple[str, ...]] = ()  # file name endings of samples; empty for any

    @abstractmethod
    def sample(self, n: int, options: Any, /, *, seed: int, device: str) -> Result:
        """Draw n samples."""

    def pieces(self, options: Any, /, *, seed: int, device: str) -> Result | None:
        """Draw one text in pieces, one row each; None for data without pieces."""
        return None


class Predicts(ABC):
    """Capability to predict; the verb has the name of the task: `chainrule tag RUN FILE`."""

    Prediction: ClassVar[type]
    verb: ClassVar[str] = ""  # name of the verb, if it differs from the task's
    several: ClassVar[bool] = False  # accepts several files
    PLOTS: ClassVar[tuple[str, ...]] = ()  # file name endings of plots; empty without plots

    @abstractmethod
    def predict(self, data: list[str], options: Any, /, *, device: str) -> Result:
        """Predict: one row per input."""


class Embeds(ABC):
    """Capability to embed inputs as vectors: `chainrule embed RUN DATA`."""

    Embedding: ClassVar[type]

    @abstractmethod
    def embed(self, data: str, options: Any, /, *, device: str) -> Result:
        """Embed each input in order: the columns input, label if known, and code."""


class Evaluates(Measured):
    """Capability to compare predictions with references: `chainrule evaluate RUN DATA`."""

    Evaluation: ClassVar[type]

    @abstractmethod
    def evaluate(self, data: str | None, options: Any, /, *, device: str) -> Result:
        """Evaluate; the summary has all figures. `data` is None if the options name the files."""


@dataclass(frozen=True)
class EncodedFiles:
    """Files encoded as elements of a model, and the rest that these cannot express."""

    layout: dict[str, Any]  # sizes required for decoding, as JSON
    side: bytes  # bytes that the elements cannot express
    laid: "RowLayout"
    elements: int
    unit: str  # name of an element, such as "character"
    instead: bytes | None = None  # bytes that FileCodec.restore returns, if not those in the files
    note: str = ""  # remark on `instead` or `side`


class FileCodec(ABC):
    """Conversion of files to elements of a run's model, and back."""

    @abstractmethod
    def express(self, files: "Mapping[str, bytes]") -> EncodedFiles:
        """Encode files, by name and in order."""

    def ready(self, model: Any, layout: dict[str, Any]) -> Any:
        """Prepare the model to code such files."""
        return model

    @abstractmethod
    def lay_out(self, layout: dict[str, Any], elements: Any = None) -> "RowLayout":
        """Lay out rows as `express` did; without their elements if none are passed."""

    @abstractmethod
    def restore(
        self, layout: dict[str, Any], side: bytes | None, elements: "Sequence[Tensor]", lost: set[int], most: int
    ) -> bytes:
        """Decode the files byte for byte; salvage the rest if rows are `lost`."""

    def finish(self, layout: dict[str, Any], bundle: "Bundle") -> "Bundle":
        """Convert decoded files to the files to write."""
        return bundle


class Compresses(ABC):
    """Capability to compress files with the run's model: `chainrule compress FILE --run RUN`."""

    @abstractmethod
    def codec(self) -> FileCodec:
        """The link between files and the model."""


@dataclass(frozen=True)
class CheckedRows:
    """Rows on which `chainrule check` tests a model."""

    model: "TrainableModel"  # the trained model, or a smaller one with its weights
    x: "Tensor"  # modelled values, batch first
    context: "Context" = None
    lengths: "Tensor | None" = None  # (B,) real elements of each row
    note: str = ""  # description of the rows


class Checks:
    """Capability to check the model on rows of its data: `chainrule check RUN`."""

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
    """Capability to inspect the model: `chainrule inspect RUN`."""

    Inspection: ClassVar[type]
    writes_page: ClassVar[bool] = True  # writes a page to --out

    @abstractmethod
    def inspect(self, data: str | None, options: Any, /, *, seed: int) -> Report:
        """Inspect held-out data, or `data`."""


class Reconstructs(ABC):
    """Capability to encode data and decode the codes: `chainrule reconstruct RUN DATA`."""

    Reconstruction: ClassVar[type]

    @abstractmethod
    def reconstruct(self, data: str, options: Any, /, *, seed: int, device: str) -> Result:
        """Return images and their reconstructions, alternating."""


class Interpolates(ABC):
    """Capability to decode the codes between two inputs: `chainrule interpolate RUN A B`."""

    Interpolation: ClassVar[type]

    @abstractmethod
    def interpolate(self, ends: tuple[str, str], options: Any, /, *, seed: int, device: str) -> Result:
        """Return the images between two, including the ends."""


class Generates(Scores, Samples, Inspects, Checks, Compresses, Embeds):
    """The capabilities of a density of whole texts, rows, images or sounds."""


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
"""The task attribute with the options class of a capability."""

PREDICTIONS = ("tag", "classify", "translate", "caption", "forecast")
METHODS: dict[str, type] = {
    "sample": Samples,
    "stream": Samples,
    "score": Scores,
    "predict": Predicts,
    **dict.fromkeys(PREDICTIONS, Predicts),
    "evaluate": Evaluates,
    "embed": Embeds,
    "reconstruct": Reconstructs,
    "interpolate": Interpolates,
    "compress": Compresses,
    "decompress": Compresses,
    "inspect": Inspects,
    "check": Checks,
}
"""The capability behind each method of `chainrule.Run`."""

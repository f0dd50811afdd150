"""The directory of a run on sounds, which are kept in `data/`.

data/sounds.json                          rate, labels, counts, fingerprints
data/train.tokens, valid.tokens           a level for each sample
data/train.clips, .labels, valid. ...     where clips begin, and what they are
preview.wav                               drawn at the last validation
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import FINGERPRINT, CheckedOptions, OptimisationOptions, RunConfig, check_entries, within
from chainrule.runs.run import DATA, Run

if TYPE_CHECKING:
    from chainrule.data.sounds import Labelling, SoundLevels, Sounds
    from chainrule.models.wavenet import WaveNet

USUAL_LEVELS = {"mu": 256, "linear": 65536}
MOST_CATEGORIES = 1024
_COUNTS = {"clips": int, "samples": int}


@dataclass(frozen=True)
class WaveNetOptions(CheckedOptions):
    """The options of `chainrule.models.WaveNet`."""

    channels: int = within(48, 1, 1 << 12)
    """Features between the layers."""
    blocks: int = within(2, 1, 64)
    """How many times the dilations begin anew."""
    layers_per_block: int = within(9, 1, 20)
    """Layers of a block: dilations 1, 2, 4, and so on."""
    kernel_size: int = within(2, 2, 16)
    """Taps of each convolution."""
    skip_channels: int = within(128, 1, 1 << 14)
    """Features in which the layers are summed."""
    head: Literal["auto", "categorical", "logistics"] = "auto"
    """Of a sample: a probability for every level, or a mixture of logistics; auto takes it beyond 1,024 levels."""
    components: int = within(10, 1, 1 << 10)
    """Of the mixture of logistics."""


@dataclass(frozen=True)
class SoundData(CheckedOptions):
    """How sounds become sequences of levels, and which are held out."""

    rate: int | None = within(None, 100, 1_000_000)
    """Samples a second; the lowest of the files, 16000 at most, where not given. Others are resampled."""
    law: Literal["mu", "linear"] = "mu"
    """Of the levels: fine where it is quiet, as on the telephone, or even."""
    levels: int | None = within(None, 2, 65536)
    """How many; 256 of the mu law, 65536 of the linear one, where not given."""
    labels: Literal["auto", "folders", "none"] = "auto"
    """What sounds are conditioned on: the folder they are in, or nothing; auto takes folders where each is in one."""
    label_pattern: str | None = None
    """The label in file names, such as '{label}_*' for 7_jackson_12.wav, in place of folders."""
    sequences: Literal["auto", "clips", "stream"] = "auto"
    """Each file a sequence, or all of them one; auto looks how long they are."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the files, or of each of a few, that is held out."""
    skip_bad: bool = False
    """Leave out files that cannot be read."""


@dataclass(frozen=True)
class SoundTraining(OptimisationOptions):
    """How a model of sounds is trained: a row is thousands of samples."""

    batch_size: int = within(2, 1, 1 << 24)
    """Rows of a batch."""
    learning_rate: float = within(3e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""
    chunk_length: int = within(8192, 1, 1 << 24)
    """Samples of a row: of a piece of a longer clip, or of a stream."""


class SoundRun(Run["WaveNet"]):
    """A run on sounds."""

    KIND = "sound"
    DATA = SoundData
    MODELS: ClassVar[dict[str, type]] = {"wavenet": WaveNetOptions}
    TRAINING = SoundTraining

    @property
    def data(self) -> SoundData:
        """How the sounds are read."""
        return cast(SoundData, self.config.data)

    @property
    def options(self) -> WaveNetOptions:
        """Those of the model."""
        return cast(WaveNetOptions, self.config.options)

    @property
    def training(self) -> SoundTraining:
        """How it is trained."""
        return cast(SoundTraining, self.config.training)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "rate", "law", "levels", "labels", "sequences", "train", "valid"} <= facts.keys():
            raise ValueError("facts: expected what preparing sounds leaves, with source, rate, levels and labels")
        check_entries("facts", facts, "source", FINGERPRINT)
        for part in ("train", "valid"):
            check_entries("facts", facts, part, _COUNTS)
        for name, most in (("rate", 1_000_000), ("levels", 65536)):
            if type(facts[name]) is not int or not 2 <= facts[name] <= most:
                raise ValueError(f"facts.{name}: expected a whole number from 2 to {most}, got {facts[name]!r:.80}")
        if not isinstance(facts["labels"], list) or not all(isinstance(label, str) for label in facts["labels"]):
            raise ValueError(f"facts.labels: expected a list of names, got {facts['labels']!r:.80}")

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        levels = config.data.levels or USUAL_LEVELS[config.data.law]
        if config.options.head == "categorical" and levels > MOST_CATEGORIES:
            raise ValueError(
                f"--head: expected logistics for {levels} levels, got categorical, which is for {MOST_CATEGORIES}"
            )

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.config.facts["rate"])

    @property
    def labels(self) -> list[str]:
        """What a sound may be conditioned on; none where it is on nothing."""
        return cast(list[str], self.config.facts["labels"])

    @property
    def levels(self) -> "SoundLevels":
        """What an element stands for."""
        from chainrule.data.sounds import make_levels

        return make_levels(self.config.facts["law"], self.config.facts["levels"])

    @property
    def labelling(self) -> "Labelling":
        """How a label is read off a name, in a run with labels."""
        from chainrule.data.sounds import Labelling

        return Labelling(self.data.label_pattern)

    def sounds(self) -> "Sounds":
        """The prepared sounds."""
        from chainrule.data.sounds import open_sounds

        return open_sounds(self.path / DATA)

    def build(self) -> "WaveNet":
        from chainrule.models.wavenet import WaveNet

        options, levels = self.options, self.config.facts["levels"]
        logistics = options.head == "logistics" or (options.head == "auto" and levels > MOST_CATEGORIES)
        return WaveNet(
            levels,
            options.channels,
            options.blocks,
            options.layers_per_block,
            options.kernel_size,
            options.skip_channels,
            components=options.components if logistics else None,
            num_classes=len(self.labels) or None,
        )

    def fewest_weights(self) -> int:
        options = self.options
        layers, channels = options.blocks * options.layers_per_block, options.channels
        a_layer = channels * (2 * options.kernel_size * channels + options.skip_channels)
        return layers * a_layer + options.skip_channels**2

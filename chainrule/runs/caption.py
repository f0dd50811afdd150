"""The directory of a run on captioned pictures: pixels, words and captions in `data/`."""

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

from chainrule.runs.config import FINGERPRINT, CheckedOptions, OptimisationOptions, check_entries, within
from chainrule.runs.run import DATA, Run

if TYPE_CHECKING:
    from torch import nn

    from chainrule.data.captions import PreparedCaptions
    from chainrule.models.captioner import Captioner

CellName = Literal["lstm", "gru", "rnn"]
BACKBONE = "backbone.safetensors"


@dataclass(frozen=True)
class CaptionData(CheckedOptions):
    """How pictures and captions are read, and which are held out."""

    picture_size: int = within(64, 8, 1024)
    """Pixels that every picture has in the end, both ways."""
    fit: Literal["crop", "pad", "stretch"] = "crop"
    """How a picture that is no square becomes one: cut off two sides, add black bars, or change its proportions."""
    min_count: int = within(3, 1, 1 << 40)
    """Rarer words become unknown."""
    lower_case: bool = True
    """Read captions in lower case."""
    max_length: int = within(100, 1, 1 << 16)
    """Most words of a caption."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the pictures that is held out, where none are named."""


@dataclass(frozen=True)
class CaptionOptions(CheckedOptions):
    """The options of `chainrule.models.Captioner`, its cell apart: that is the name of the model."""

    embedding_size: int = within(192, 1, 1 << 16)
    """Features of each word."""
    hidden_size: int = within(256, 1, 1 << 16)
    """Units of each layer."""
    num_layers: int = within(1, 1, 64)
    """Recurrent layers."""
    picture_features: int = within(128, 8, 1 << 14)
    """Features of each place of the grid; those of the stages before are a half and a quarter."""
    blocks: int = within(1, 1, 64)
    """Residual blocks of each stage of the picture network."""
    backbone: Literal["none", "resnet18", "resnet34", "resnet50"] = "none"
    """A published picture network in the place of the built-in one; its weights come from --backbone-weights."""
    dropout: float = within(0.4, 0.0, 0.99)
    """Share of features dropped in training."""
    attention: Literal["additive", "multiplicative", "none"] = "additive"
    """How the decoder looks at the picture; none reads a single vector."""
    input_feeding: bool = False
    """Show the decoder what the last word was predicted from."""
    label_smoothing: float = within(0.0, 0.0, 0.99)
    """Share of each target that all words have, in training."""


@dataclass(frozen=True)
class CaptionTraining(OptimisationOptions):
    """How a captioner is trained."""

    batch_size: int = within(64, 1, 1 << 24)
    """Pictures of a batch."""
    learning_rate: float = within(2e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""


class CaptionRun(Run["Captioner"]):
    """A run on captioned pictures."""

    KIND = "caption"
    SOURCES: ClassVar[dict[str, str]] = {
        "source": "DATA",
        "captions": "--captions",
        "validation": "--validation",
        "dev_captions": "--validation-captions",
    }
    DATA = CaptionData
    MODELS: ClassVar[dict[str, type]] = dict.fromkeys(get_args(CellName), CaptionOptions)
    TRAINING = CaptionTraining

    @property
    def data(self) -> CaptionData:
        """How pictures and captions are read."""
        return cast(CaptionData, self.config.data)

    @property
    def options(self) -> CaptionOptions:
        """Those of the model."""
        return cast(CaptionOptions, self.config.options)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "captions", "counts", "words"} <= facts.keys() or type(facts["words"]) is not int:
            raise ValueError("facts: expected what preparing captions leaves, with source, captions, counts and words")
        if not 2 <= facts["words"] <= 1 << 24:
            raise ValueError(f"facts.words: expected a whole number from 2 to {1 << 24}, got {facts['words']}")
        for name in ("source", "captions"):
            check_entries("facts", facts, name, FINGERPRINT)

    @cached_property
    def prepared(self) -> "PreparedCaptions":
        """Pixels, words and captions, opened once."""
        from chainrule.data.captions import open_captions

        return open_captions(self.path / DATA)

    def keep_backbone(self, weights: Path) -> None:
        """Copy the weights of the picture network into the run, so that nothing else is needed to go on with it."""
        shutil.copyfile(weights, self.path / DATA / BACKBONE)

    def new_model(self, seed: int) -> "Captioner":
        from chainrule.layers.backbone import Backbone

        model = super().new_model(seed)
        if isinstance(model.encoder, Backbone):
            model.encoder.load(self.path / DATA / BACKBONE)
        return model

    def build(self) -> "Captioner":
        from chainrule.models.captioner import Captioner

        options = self.options
        return Captioner(
            self.config.facts["words"],
            self._encoder(),
            self.config.model,
            options.embedding_size,
            options.hidden_size,
            options.num_layers,
            options.dropout,
            attention=None if options.attention == "none" else options.attention,
            input_feeding=options.input_feeding,
            label_smoothing=options.label_smoothing,
        )

    def fewest_weights(self) -> int:
        options = self.options
        return self.config.facts["words"] * options.embedding_size + options.num_layers * options.hidden_size**2

    def _encoder(self) -> "nn.Module":
        from chainrule.layers.backbone import Backbone
        from chainrule.layers.picture_encoder import PictureEncoder

        options = self.options
        if options.backbone != "none":
            return Backbone(options.backbone)
        last = options.picture_features
        return PictureEncoder((last // 4, last // 2, last), options.blocks)

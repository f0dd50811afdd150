"""Another library's picture network, with weights that the user has, in the place of `PictureEncoder`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from chainrule.layers.picture_encoder import standardised


class Backbone(nn.Module):
    """The last feature map of a network of timm, as a grid.

    Args:
        name: as `timm.create_model` knows it, such as "resnet18".
        trained: whether its weights are learnt further, or stay as they are.

    Raises:
        ValueError: timm is not installed, or knows no such network.
    """

    def __init__(self, name: str, *, trained: bool = False):
        super().__init__()
        try:
            timm: Any = import_module("timm")
        except ImportError:
            raise ValueError(f"backbone {name!r}: made by timm, which is not installed: pip install timm") from None
        try:
            self.network: nn.Module = timm.create_model(name, pretrained=False, features_only=True)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"backbone: timm makes no features with {name!r} ({error})") from None
        self.output_size: int = self.network.feature_info.channels()[-1]
        self.trained = trained
        self.network.requires_grad_(trained)

    def load(self, path: Path) -> None:
        """Take weights from a safetensors file; those of a classifier's last layer are left out.

        Raises:
            ValueError: it is no safetensors file, or lacks weights of this network. Nothing of it is executed.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            weights = load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path}: expected a safetensors file ({error}): convert the weights first") from None
        needed = self.network.state_dict()
        missing = [name for name in needed if name not in weights or weights[name].shape != needed[name].shape]
        if missing:
            raise ValueError(f"{path}: lacks {missing[0]!r} of this network, and {len(missing) - 1} more weights")
        self.network.load_state_dict({name: weights[name] for name in needed})

    def train(self, mode: bool = True) -> "Backbone":
        """A network that is not learnt further keeps its running means too."""
        super().train(mode)
        if not self.trained:
            self.network.eval()
        return self

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 3, H, W) of values from 0 to 255, to a grid (B, S, N)."""
        features = self.network(standardised(pictures, next(self.network.parameters())))
        return features[-1].flatten(2).transpose(1, 2)

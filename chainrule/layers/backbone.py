"""A published picture network, with weights that the user has, in the place of `ImageEncoder`."""

from pathlib import Path
from typing import final

from torch import Tensor, nn

from chainrule.layers.image_encoder import standardised
from chainrule.layers.resnet import ResNet


@final
class Backbone(nn.Module):
    """The last feature map of a `ResNet`, as a grid.

    Args:
        name: resnet18, resnet34 or resnet50.
        trained: whether its weights are learnt further, or stay as they are.

    Raises:
        ValueError: there is no network of this name.
    """

    def __init__(self, name: str, *, trained: bool = False):
        super().__init__()
        self.network = ResNet(name)
        self.output_size = self.network.output_size
        self.trained = trained
        self.network.requires_grad_(trained)

    def load(self, path: Path) -> None:
        """Take weights from a safetensors file; those of the classifier are left out.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no safetensors file, or lacks weights of this network. Nothing of it is executed.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            weights = load_file(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path}: no such file: expected the weights of the picture network") from None
        except SafetensorError as error:
            raise ValueError(f"{path}: expected a safetensors file ({error}): convert the weights first") from None
        needed = self.network.state_dict()
        # Counts of batches seen in training, which some files leave out: unused with running means of fixed momentum.
        weights = {name: count for name, count in needed.items() if name.endswith("num_batches_tracked")} | weights
        missing = [name for name in needed if name not in weights or weights[name].shape != needed[name].shape]
        if missing:
            raise ValueError(
                f"{path}: expected the weights of a network with {missing[0]!r} {tuple(needed[missing[0]].shape)}, "
                f"got none of this name and shape, nor of {len(missing) - 1} more: name the network that they belong to"
            )
        self.network.load_state_dict({name: weights[name] for name in needed})

    def train(self, mode: bool = True) -> "Backbone":
        """A network that is not learnt further keeps its running means too."""
        super().train(mode)
        if not self.trained:
            self.network.eval()
        return self

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 3, H, W) of values from 0 to 255, to a grid (B, S, N)."""
        features: Tensor = self.network(standardised(pictures, self.network.conv1.weight))
        return features.flatten(2).transpose(1, 2)

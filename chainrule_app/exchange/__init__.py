"""Models to and from other software: Hugging Face folders, ONNX, `torch.export`, checkpoints of nanoGPT and torch.nn.

Nothing that is read is executed: JSON, safetensors, and pickles of tensors and plain values alone.
"""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.exchange.exporting import export_run as export_run
    from chainrule_app.exchange.importing import import_model as import_model

__getattr__, __dir__ = attach(__name__)

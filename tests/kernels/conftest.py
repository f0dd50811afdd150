"""What keeps compiled loops from running."""

from contextlib import contextmanager

import pytest
import torch

from chainrule.kernels import _compiled

WITHOUT_LOOPS = ("off", "hook", "numba", "type", "autocast", "folder")


@pytest.fixture(params=WITHOUT_LOOPS)
def without_loops(request, monkeypatch, tmp_path):
    """A block in which a model may not be drawn from in compiled loops, given one of its layers."""
    why = request.param

    @contextmanager
    def block(model, layer):
        if why == "off":
            monkeypatch.setenv("CHAINRULE_KERNELS", "off")
        if why == "hook":
            layer.register_forward_hook(lambda module, inputs, outputs: None)
        if why == "numba":
            monkeypatch.setattr(_compiled, "_imported", lambda: None)
        if why == "type":
            model.bfloat16()
        if why == "folder":
            from numba import config

            (tmp_path / "file").touch()
            monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file" / "in it"))
        with torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"):
            yield

    return block

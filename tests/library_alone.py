"""Check the library in an environment with its three dependencies alone; `make test-library` builds it and runs this.

    python tests/library_alone.py

Imports every public name, checks and samples a PixelCNN, trains a recurrent model in two parts, and reads the lines
that name the extra where somebody asks for the application. numba, polars and all others must be missing.
"""

import pkgutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import torch

import chainrule
from chainrule.data import StreamBatches, Tokens
from chainrule.models import PixelCNN, RecurrentLM
from chainrule.testing import check_model
from chainrule.training import TrainingOptions, evaluate, load_weights, train

ABSENT = ("numba", "polars", "narwhals", "PIL", "rich", "cyclopts")


def main() -> None:
    core = sorted(line.split(">")[0] for line in requires("chainrule") or () if "extra" not in line)
    assert core == ["numpy", "safetensors", "torch"], core
    present = [name for name in ABSENT if find_spec(name) is not None]
    assert not present, f"this environment has more than the library's dependencies: {present}"
    names = 0
    for part in [module.name for module in pkgutil.walk_packages(chainrule.__path__, "chainrule.") if module.ispkg]:
        package = import_module(part)
        for name in getattr(package, "__all__", ()):
            assert getattr(package, name) is not None
            names += 1
    torch.manual_seed(0)
    model = PixelCNN((1, 4, 4), levels=2, channels=4, layers=1)
    images = torch.randint(2, (3, 1, 4, 4))
    report = check_model(model, images)
    assert report, report
    assert model.sample(2, generator=torch.Generator().manual_seed(0)).shape == (2, 1, 4, 4)
    learns()
    with suppress(ImportError):
        raise AssertionError(f"{chainrule.fit} works without the application's packages")
    command = subprocess.run([sys.executable, "-m", "chainrule", "train"], capture_output=True, text=True)
    assert command.returncode == 2, command
    assert command.stderr.count("\n") == 1, command.stderr
    assert "pip install 'chainrule[app]'" in command.stderr
    print(f"the library works alone: {', '.join(core)}; {names} public names")


def learns() -> None:
    """Train a recurrent model on a repeated line, stop, resume, and reload its weights."""
    tokens = Tokens([1, 2, 3, 0] * 300, eos=0)
    batches = StreamBatches(tokens, batch_size=4, chunk_length=16)

    def held_out():
        return StreamBatches.evaluation(tokens, batch_size=4, chunk_length=16)

    with tempfile.TemporaryDirectory() as folder:
        for steps in (10, 40):
            model = RecurrentLM(4, cell="gru", hidden_size=8)
            options = TrainingOptions(steps=steps, learning_rate=0.02)
            train(model, batches, held_out, options, folder, resume=steps > 10, progress=False)
        nats = evaluate(model, held_out()).nats_per_element
        assert nats < 0.7, nats
        again = RecurrentLM(4, cell="gru", hidden_size=8)
        load_weights(Path(folder) / "model.safetensors", again)
        assert evaluate(again, held_out()).nats_per_element == nats


if __name__ == "__main__":
    main()

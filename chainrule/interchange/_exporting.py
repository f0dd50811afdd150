"""Folders that other software reads, made of a run."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save_file

from chainrule._app.tasks.run_directory import CHECKPOINT, CONFIG, DATA, REPORT, VOCABULARY
from chainrule._app.tasks.task import Task
from chainrule._app.tasks.text.task import TextTask
from chainrule.data._atomic import umask, write_json, write_text
from chainrule.interchange._card import model_card
from chainrule.interchange._causal_lm import causal_lm, misfit
from chainrule.interchange._graphs import write_graphs
from chainrule.interchange._tokenizer import START, tokenizer_of
from chainrule.models import TransformerLM

Form = Literal["hub", "onnx", "torch-export"]
_LEFT = (CHECKPOINT, REPORT, "tensorboard", ".*")
_KEPT = (".json", ".safetensors", ".pt")  # of the prepared data: what describes them, not the data


def export_run(run: Task[Any], to: Form, out: str | Path) -> list[str]:
    """Write a trained model as a folder for other software.

    Args:
        run: the run.
        to: "hub", a folder for the Hugging Face Hub; "onnx" or "torch-export", graphs of `step` and `forward`.
        out: the folder, which must be new or empty.

    Returns:
        Lines that say what was written.

    Raises:
        FileExistsError: there is something in the folder.
        ValueError: the model cannot be exported so; the message says why. Nothing is written.
    """
    if to not in ("hub", "onnx", "torch-export"):
        raise ValueError(f"to: expected hub, onnx or torch-export, got {to!r:.40}")
    with _new_folder(Path(out)) as folder:
        return _write_hub(run, folder) if to == "hub" else _write_graphs(run, folder, to)


def _write_hub(run: Task[Any], folder: Path) -> list[str]:
    model = run.model()
    reason = misfit(model) if isinstance(run, TextTask) else f"a run of the task {run.name} is no causal language model"
    if not reason:
        assert isinstance(model, TransformerLM)
        assert isinstance(run, TextTask)
        return _write_causal_lm(run, model, folder)
    shutil.copytree(run.path, folder, ignore=_ignored, dirs_exist_ok=True)
    sources = {name: None if path is None else Path(path).name for name, path in run.config.sources.items()}
    write_json(folder / CONFIG, replace(run.config, sources=sources).to_json(run.name))
    load = 'import chainrule\n\nrun = chainrule.load("path/of/this/folder")\nprint(run)'
    note = f"The folder is a run of chainrule: transformers has no such model ({reason})."
    write_text(folder / "README.md", model_card(run, library="chainrule", load=load, notes=(note,)))
    return ["format: chainrule's own, read by chainrule.load and every verb", f"reason: {reason}"]


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return the names to leave out of a copy: checkpoints, pages, and prepared data."""
    exclusions = set(shutil.ignore_patterns(*_LEFT)(folder, names))
    if Path(folder).name == DATA:
        exclusions |= {name for name in names if not name.endswith(_KEPT)}
    return exclusions


def _write_causal_lm(run: TextTask, model: TransformerLM, folder: Path) -> list[str]:
    export = causal_lm(model)
    write_json(folder / CONFIG, export.config)
    save_file(export.tensors, folder / "model.safetensors", {"format": "pt"})
    tokenizer_of(run.vocabulary).save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": START,
            "add_bos_token": True,
            "clean_up_tokenization_spaces": False,
            "model_max_length": _context(export.config),
        },
    )
    load = (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'folder = "path/of/this/folder"\n'
        "model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)\n"
        'prompt = tokenizer("The ", return_tensors="pt", return_token_type_ids=False)\n'
        "print(tokenizer.decode(model.generate(**prompt, max_new_tokens=40)[0], skip_special_tokens=True))"
    )
    notes = (
        f"Every text begins with the start symbol `{START}`, number {model.vocab_size}, which the tokenizer puts "
        f"there; the model reads {_context(export.config):,} symbols at most, the start symbol counted.",
    )
    write_text(folder / "README.md", model_card(run, library="transformers", load=load, notes=notes))
    return [f"format: {export.config['architectures'][0]}, read by AutoModelForCausalLM of transformers"]


def _context(config: dict[str, Any]) -> int:
    return int(config.get("n_positions") or config["max_position_embeddings"])


def _write_graphs(run: Task[Any], folder: Path, to: Literal["onnx", "torch-export"]) -> list[str]:
    model: Any = run.model()
    written = write_graphs(model, folder, to)
    described = {
        "start": written.start,
        "graphs": {graph.name: {"inputs": graph.inputs, "outputs": graph.outputs} for graph in written.graphs},
        "state": {
            name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)[6:]} for name, leaf in written.state.items()
        },
    }
    write_json(folder / "graphs.json", described)
    if written.state:
        save_file({name: leaf.clone() for name, leaf in written.state.items()}, folder / "state.safetensors")
    if (run.path / VOCABULARY).is_file():
        shutil.copyfile(run.path / VOCABULARY, folder / VOCABULARY)
    notes = (
        "`graphs.json` names inputs and outputs in order. Log-probabilities of x[t] come from x[t - 1]: the first `x` "
        f"of `step` is the start symbol {written.start}; `forward` puts it there itself. `state.safetensors` holds the "
        "initial state, one row: repeat it for more.",
        written.missing,
    )
    write_text(
        folder / "README.md",
        model_card(
            run,
            library="onnx" if to == "onnx" else "pytorch",
            load=_load_code(to),
            notes=notes if written.state else notes[1:],
        ),
    )
    names = ", ".join(graph.name for graph in written.graphs)
    lines = [f"format: {to}, graphs of {names}, equal to the model at other sizes than the example's"]
    return [*lines, written.missing] if written.missing else lines


def _load_code(to: Literal["onnx", "torch-export"]) -> str:
    if to == "onnx":
        return 'import onnxruntime\n\nsession = onnxruntime.InferenceSession("forward.onnx")'
    return 'import torch\n\nforward = torch.export.load("forward.pt2").module()'


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `out` when the block ends without an error."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"--out {out}: there is something already: name a new or an empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as parent:
        folder = Path(parent) / out.name
        folder.mkdir()
        folder.chmod(0o777 & ~umask())
        yield folder
        for file in folder.rglob("*"):  # safetensors makes its files private
            file.chmod((0o777 if file.is_dir() else 0o666) & ~umask())
        if out.exists():
            out.rmdir()
        folder.rename(out)

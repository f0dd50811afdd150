"""Folders and pages that other software reads, made of a run."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from safetensors.torch import save_file

from chainrule.data import BPEVocabulary, CharVocabulary, Vocabulary, WordVocabulary
from chainrule.files import copy_file, naming, replacing, write_json, write_text
from chainrule.models import TransformerLM
from chainrule.option_error import OptionError, TakenError, UserError, option
from chainrule.printing import one_line
from chainrule_app.exchange.causal_lm import causal_lm, misfit
from chainrule_app.exchange.graphs import package, write_graphs
from chainrule_app.exchange.web_page import network_of, page_of
from chainrule_app.printing import shown, url_of
from chainrule_app.readers.outgoing import is_there
from chainrule_app.tasks.run_directory import (
    CHECKPOINT,
    CONFIG,
    DATA,
    NEIGHBOURS,
    REPORT,
    SHARDS,
    TRAINING_PAGE,
    VOCABULARY,
)
from chainrule_app.tasks.task import Task
from chainrule_app.tasks.text.task import TextTask

START = "<|start|>"
_BLANKS = r"[ \t\r\v\f]+"


def tokenizer_of(vocabulary: Vocabulary) -> Any:
    """Return a `tokenizers.Tokenizer` that encodes a text as the vocabulary does, behind the start symbol V."""
    library = package("tokenizers")
    models, splits, decoders = library.models, library.pre_tokenizers, library.decoders
    if isinstance(vocabulary, WordVocabulary) and vocabulary.split_punctuation:
        raise UserError(
            "a tokenizer.json cannot join split punctuation again", f"train with {option('level', 'bpe')} to export it"
        )
    byte_level = splits.ByteLevel(add_prefix_space=False, use_regex=isinstance(vocabulary, BPEVocabulary))
    if isinstance(vocabulary, CharVocabulary | WordVocabulary):
        is_char = isinstance(vocabulary, CharVocabulary)
        names = {
            vocabulary.decode([number]): number for number in range(len(vocabulary)) if number != vocabulary.unknown
        }
        unknown = Vocabulary.UNKNOWN
        tokenizer = library.Tokenizer(models.WordLevel(names | {unknown: vocabulary.unknown}, unk_token=unknown))
        if is_char:
            tokenizer.pre_tokenizer = splits.Split(library.Regex(r"[\s\S]"), "isolated")
            tokenizer.decoder = decoders.Fuse()
        else:
            lines, blanks = splits.Split("\n", "isolated"), splits.Split(library.Regex(_BLANKS), "removed")
            tokenizer.pre_tokenizer = splits.Sequence([lines, blanks])
    elif isinstance(vocabulary, BPEVocabulary):
        pieces = {piece: number for number, piece in enumerate(vocabulary.pieces)}
        tokenizer = library.Tokenizer(models.BPE(vocab=pieces, merges=vocabulary.merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
        tokenizer.add_tokens([library.AddedToken(**asdict(token), special=False) for token in vocabulary.added])
        if vocabulary.eos is not None:
            tokenizer.add_tokens([library.AddedToken("\n", normalized=False)])
    else:
        pieces = {piece: number for number, piece in enumerate(BPEVocabulary([]).pieces)}
        tokenizer = library.Tokenizer(models.BPE(vocab=pieces, merges=[]))
        tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    tokenizer.add_special_tokens([library.AddedToken(START, special=True, normalized=False)])
    assert tokenizer.token_to_id(START) == len(vocabulary), (Vocabulary.EOS, tokenizer.get_vocab_size())
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, len(vocabulary))]
    )
    return tokenizer


def model_card(run: Task[Any], *, library: str, load: str, notes: tuple[str, ...] = ()) -> str:
    """Markdown with the front matter that the Hugging Face Hub reads."""
    best = run.held_out()
    model = run.model()
    rows = {
        "task": run.name,
        "model": run.config.model,
        "parameters": f"{sum(weight.numel() for weight in model.parameters()):,}",
        "data": "; ".join(line.strip() for line in run.introduce()),
    }
    options = {
        name: value for name, value in run.config.to_json(run.name)["model"]["options"].items() if value is not None
    }
    figures = {}
    if best is not None:
        is_nats = best.basis.quantity == "nats"
        name = f"{'bits' if is_nats else best.basis.quantity} per {best.basis.unit}"
        figures = {name: f"{best.bits_per_element if is_nats else best.nats_per_element:.4f} ({best.basis.how})"}
        if is_nats and best.bits_per_byte is not None:
            figures["bits per byte"] = f"{best.bits_per_byte:.4f}"
        figures["measured on"] = f"{best.elements:,} held-out elements, data {best.data[:12]}"
    tags = "\n".join(f"- {tag}" for tag in ("chainrule", run.name, run.config.model))
    task = "pipeline_tag: text-generation\n" if run.name == "text" else ""
    parts = [
        f"---\nlibrary_name: {library}\n{task}tags:\n{tags}\n---\n",
        f"# {_cell(Path(run.path).resolve().name)}\n",
        f"A model of the task {run.name}, trained with chainrule.\n",
        _table(rows),
        "## Figures\n",
        _table(figures) if figures else "No validation was recorded.\n",
        "## Options\n",
        _table({name: str(value) for name, value in options.items()}),
        "## Load it\n",
        f"```python\n{load}\n```\n",
        *(f"{note}\n" for note in notes),
    ]
    return "\n".join(parts)


def _table(rows: dict[str, str]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(text)} |" for name, text in rows.items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that ends no cell and begins no markup."""
    plain = one_line(text)
    for mark in "\\`|<>[]*_#":
        plain = plain.replace(mark, f"\\{mark}")
    return plain


Form = Literal["hub", "onnx", "torch-export", "web"]
_LEFT = (CHECKPOINT, *SHARDS, REPORT, TRAINING_PAGE, "tensorboard", "wandb", "tracking.json", "valid.json", ".*")
_KEPT = (".json", ".safetensors", ".pt")  # of the prepared data: what describes them, not the data


def export_run(run: Task[Any], to: Form, out: str | Path) -> list[str]:
    """Write a trained model as a folder for other software, or as a page for a browser.

    Args:
        run: the run.
        to: "hub", a folder for the Hugging Face Hub; "onnx" or "torch-export", graphs of `step` and `forward`; "web",
            one HTML file.
        out: the folder, which must be new or empty, or the file, which must be new.

    Returns:
        Lines that say what was written.

    Raises:
        FileExistsError: there is something in the folder, or the file.
        ValueError: the model cannot be exported so; the message says why. Nothing is written.
    """
    if to not in get_args(Form):
        raise OptionError("to", f"expected hub, onnx, torch-export or web, got {to!r:.40}")
    if url_of(out) is not None and is_there(Path(out)):
        raise TakenError("out", f"{shown(out)} already exists", "name another place")
    if to == "web":
        return _write_page(run, Path(out))
    with _new_folder(Path(out)) as folder:
        return _write_hub(run, folder) if to == "hub" else _write_graphs(run, folder, to)


def _write_page(run: Task[Any], out: Path) -> list[str]:
    if out.exists() or out.is_symlink():
        raise TakenError("out", f"{out} already exists", "name a new file")
    network, line = network_of(run)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page_of(network))
    return ["format: one HTML file, for any browser, without a network", line]


def _write_hub(run: Task[Any], folder: Path) -> list[str]:
    model = run.model()
    reason = misfit(model) if isinstance(run, TextTask) else f"a run of the task {run.name} is no causal language model"
    if not reason:
        assert isinstance(model, TransformerLM)
        assert isinstance(run, TextTask)
        return _write_causal_lm(run, model, folder)
    with naming(folder):
        shutil.copytree(run.path, folder, ignore=partial(_ignored, Path(run.PREPARED).name), dirs_exist_ok=True)
    sources = {name: None if path is None else Path(path).name for name, path in run.config.sources.items()}
    init = None if run.config.init is None else replace(run.config.init, run=Path(run.config.init.run).name)
    write_json(folder / CONFIG, replace(run.config, sources=sources, init=init).to_json(run.name))
    load = 'import chainrule\n\nrun = chainrule.load("path/of/this/folder")\nprint(run)'
    notes = [f"The folder is a run of chainrule: transformers has no such model ({reason})."]
    lines = ["format: chainrule's own, read by chainrule.load and every verb", f"reason: {reason}"]
    if (folder / NEIGHBOURS).is_file():
        lines.append(f"{NEIGHBOURS} holds rows of the training table: do not publish it if these are private")
        notes.append(f"`{NEIGHBOURS}` holds rows of the training table.")
    write_text(folder / "README.md", model_card(run, library="chainrule", load=load, notes=tuple(notes)))
    return lines


def _ignored(manifest: str, folder: str, names: list[str]) -> set[str]:
    """Return the names to leave out of a copy: checkpoints, pages, logs that name the machine, and prepared data."""
    exclusions = set(shutil.ignore_patterns(*_LEFT)(folder, names))
    if Path(folder).name == DATA:
        exclusions |= {name for name in names if name == manifest or not name.endswith(_KEPT)}
    return exclusions


def _write_causal_lm(run: TextTask, model: TransformerLM, folder: Path) -> list[str]:
    export = causal_lm(model)
    write_json(folder / CONFIG, export.config)
    with replacing(folder / "model.safetensors") as file:
        save_file(export.tensors, file, {"format": "pt"})
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
        with replacing(folder / "state.safetensors") as file:
            save_file({name: leaf.clone() for name, leaf in written.state.items()}, file)
    if (run.path / VOCABULARY).is_file():
        copy_file(run.path / VOCABULARY, folder / VOCABULARY)
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
        raise TakenError("out", f"{out} is not empty", "name a new or an empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as parent:
        folder = Path(parent) / out.name
        folder.mkdir()
        mode = folder.stat().st_mode  # what the umask gives
        yield folder
        for file in folder.rglob("*"):  # safetensors makes its files private
            file.chmod(mode if file.is_dir() else mode & 0o666)
        if out.exists():
            out.rmdir()
        folder.rename(out)

"""`chainrule compress`, `decompress`, `export`, `import` and `serve`: runs, and what other programs read and write."""

import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from chainrule._app.cli.signature import verb_for
from chainrule._app.tasks import open_run
from chainrule._app.tasks.display import Switch, dump_json, progress_bars, quoted, size_of
from chainrule._app.tasks.task import Task
from chainrule._printing import one_line
from chainrule.data._atomic import write_bytes
from chainrule.data._text import refuse_device


@verb_for("codec")
def compress(
    file: Path,
    /,
    *,
    run: Task[Any] | None = None,
    out: Path | None = None,
    verify: bool = True,
    portable: Switch = False,
    json: Switch = False,
) -> None:
    """Compress a file or a folder without loss, to about −log₂ p bits under a model.

    With a run, its model encodes the file. Decompression then needs the same run, on a processor that rounds alike.
    Without a run, an adaptive model learns while it reads, and decompression needs nothing else. If lzma or plain
    storage gives a smaller file, chainrule writes that. The result is decoded and compared before it is written.

    Args:
        file: A file of any kind, or a folder.
        run: Run directory of a model for such files.
        out: File to write; FILE.chain by default.
        verify: Decode the result and compare before writing it.
        portable: Compute the run's model in arithmetic that is bit-identical on every processor; several times slower.
            Without a run the arithmetic is always portable.
        json: Print one JSON object.
    """
    from chainrule._app.tasks.bundle import named, read_bundle, refuse_taken
    from chainrule._app.tasks.compression import compress_data

    index = out or named(file).with_name(f"{named(file).name}.chain")
    refuse_taken(index)
    bundle, began = read_bundle(file), monotonic()
    with progress_bars() as progress:
        compressed = compress_data(
            bundle.data, bundle.described, run, progress=progress, verify=verify, portable=portable
        )
    write_bytes(index, compressed.data)
    seconds, size, written = monotonic() - began, len(bundle.data), len(compressed.data)
    values = {
        "file": str(file),
        "out": str(index),
        "method": compressed.method,
        "bytes": size,
        "compressed_bytes": written,
        "elements": compressed.elements,
        "unit": compressed.unit,
        "bits_per_element": 8 * written / compressed.elements if compressed.elements else None,
        "bits_per_byte": 8 * written / size if size else None,
        "seconds": seconds,
        "verified": verify,
    }
    if json:
        print(dump_json(values))
        return
    rate = f", {8 * written / compressed.elements:.4f} bits a {compressed.unit}" if compressed.elements else ""
    if compressed.unit != "byte" and size:
        rate += f", {8 * written / size:.4f} bits a byte"
    checked = "read back and compared" if verify else "not read back"
    print(f"{one_line(str(index))}: {size_of(size)} in {size_of(written)}{rate}; {checked}; {seconds:.1f} s")
    if compressed.note:
        print(compressed.note)


@verb_for("codec")
def decompress(
    file: Path,
    /,
    *,
    run: Task[Any] | None = None,
    out: Path | None = None,
    salvage: Switch = False,
    json: Switch = False,
) -> None:
    """Restore a file that `chainrule compress` wrote: the same bytes, or nothing.

    Args:
        file: The .chain file.
        run: The run that compressed it, if any.
        out: File or folder to write; its original name in the current folder by default.
        salvage: Write the undamaged part of a damaged file.
        json: Print one JSON object.
    """
    from chainrule._app.tasks.bundle import bundle_name, refuse_taken, write_bundle
    from chainrule._app.tasks.compression import check_header, decompress_data, describe_damage
    from chainrule.coding._container import read_container

    if file.is_dir():
        raise ValueError(f"{file}: expected a .chain file, got a directory")
    refuse_device(file)
    container, began = read_container(file.read_bytes(), str(file)), monotonic()
    described = container.header
    check_header(container, str(file))
    name = bundle_name(described)
    target = out or Path(name)
    refuse_taken(target)
    with progress_bars() as progress:
        bundle = decompress_data(container, str(file), run, progress=progress, salvage=salvage)
    write_bundle(target, bundle)
    values = {
        "file": str(file),
        "out": str(target),
        "bytes": len(bundle.data),
        "method": described["method"],
        "damaged_parts": container.damaged,
        "seconds": monotonic() - began,
    }
    if json:
        print(dump_json(values))
        return
    size = sum(size for _, size in described["files"])
    checked = (
        "its SHA-256 is right"
        if not container.damaged
        else f"{describe_damage(container)}: what is left of {size_of(size)}"
    )
    print(f"{one_line(str(target))}: {size_of(len(bundle.data))}; {checked}; {values['seconds']:.1f} s")


@verb_for()
def export(run: Task[Any], /, *, to: Literal["hub", "onnx", "torch-export"], out: Path, json: Switch = False) -> None:
    """Write a trained model as a folder for other software.

    hub: config.json, model.safetensors, tokenizer.json and a model card. A Transformer without n-grams is written as
    GPT-2, GPT-NeoX or StableLM, which transformers opens; any other model as a run for chainrule. onnx and
    torch-export: graphs of step and forward with the state as input and output, for any batch size and length.

    Args:
        to: The format.
        out: The folder to write, new or empty.
        json: Print one JSON object.
    """
    from chainrule.interchange import export_run

    lines = export_run(run, to, out)
    files = {file.name: file.stat().st_size for file in sorted(out.iterdir()) if file.is_file()}
    if json:
        print(dump_json({"run": str(run.path), "to": to, "out": str(out), "files": files, "notes": lines}))
        return
    print(f"{one_line(str(out))}: {', '.join(f'{name} {size_of(size)}' for name, size in files.items())}")
    for line in lines:
        print(line)


@verb_for()
def import_(
    kind: Literal["nanogpt", "torch-rnn", "huggingface"],
    file: Path,
    /,
    *,
    out: Path,
    vocabulary: Path | None = None,
    start: str | None = None,
    overwrite: Switch = False,
    json: Switch = False,
) -> None:
    """Make a run of a language model that another program trained: nanogpt, torch-rnn or huggingface.

    The run has exactly the conditionals of the imported model; sample, score and the other verbs work as usual.
    Nothing in a checkpoint is executed.

    Args:
        kind: nanogpt, a checkpoint of nanoGPT; torch-rnn, the state dict of an embedding, nn.LSTM, nn.GRU or nn.RNN,
            and a linear layer; huggingface, a folder with GPT-2.
        file: The checkpoint, or the folder.
        out: The run directory.
        vocabulary: The symbols: a tokenizer.json, JSON that lists or numbers the symbols, or a text with every
            character once, in order; required unless the folder has a tokenizer.json.
        start: Symbol before the first one; <|endoftext|> if the vocabulary has it, else the line feed.
        overwrite: Replace the run in --out.
        json: Print one JSON object.
    """
    from chainrule._app.tasks.text.task import TextTask
    from chainrule.interchange import import_model

    run = import_model(kind, file, out, vocabulary=vocabulary, start=start, overwrite=overwrite)
    weights = sum(weight.numel() for weight in run.model.parameters())
    name = run.config["model"]["name"]
    size = len(TextTask.open(out).vocabulary)
    if json:
        print(dump_json({"run": str(out), "model": name, "parameters": weights, "vocabulary_size": size}))
        return
    print(f"{name}: {weights:,} weights, {size:,} symbols")
    print(f"run:  {quoted(out)}\nnext: chainrule sample {quoted(out)}")


_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


@verb_for()
def serve(
    *runs: Path,
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    open_page: Annotated[bool, Parameter(name="--open", negative=())] = False,
) -> None:
    """Serve trained runs: a page to play with in a browser, OpenAI-compatible completions, and a JSON API.

    Needs three packages: pip install fastapi uvicorn prometheus-client. Ctrl-C stops the server.

    Args:
        runs: Run directories, of any tasks.
        port: Port to listen on; 0 takes a free one.
        host: Address or name to listen on; any but the default lets other machines reach the server.
        token: Secret that every request must carry (Authorization: Bearer TOKEN); not required by default.
        open_page: Open the page in a browser.
    """
    if not runs:
        raise ValueError("RUN: expected at least one run directory, got none")
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ValueError(f"serve: needs packages that are not installed: pip install {' '.join(missing)}")
    if not 0 <= port <= 65535:
        raise ValueError(f"port: expected 0 to 65535, got {port}")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError("token: expected printable ASCII characters without surrounding blanks")
    paths = {}
    for path in runs:
        open_run(path)  # what is no run is told before torch is imported
        name = path.resolve().name
        if name in paths:
            raise ValueError(f"{path}: another run is called {name} too: rename one of the two directories")
        paths[name] = path
    from chainrule.serve._listening import listen

    with listen(host, port) as listening:
        print(f"loading {', '.join(paths)} …", file=sys.stderr, flush=True)
        from chainrule._app.fitting import load
        from chainrule.serve._server import serve_runs

        loaded = {name: load(path) for name, path in paths.items()}
        serve_runs(loaded, listening, host=host, token=token, open_page=open_page)

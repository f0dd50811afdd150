"""`chainrule compress`, `decompress`, `export`, `import`, `serve` and `demo`: runs, and what other programs use."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from chainrule.files import refuse_device, write_bytes
from chainrule.option_error import OptionError
from chainrule.printing import one_line
from chainrule.ranges import Range
from chainrule_app.cli.signature import Device, RunPath
from chainrule_app.printing import dump_json, progress_bars, quoted, shown, size_of, url_of
from chainrule_app.readers.outgoing import is_there
from chainrule_app.tasks import open_run
from chainrule_app.tasks.config import Switch


def compress(
    run: RunPath, file: Path, /, *, out: Path | None = None, verify: bool = True, json: Switch = False
) -> None:
    """Compress a file without loss, to about −log₂ p bits under a run's model.

    Decompression needs the same run, on a processor that rounds alike. If lzma or plain storage gives a smaller file,
    chainrule writes that. The result is decoded and compared before it is written.

    Args:
        file: A file of the kind that the run was trained on.
        out: File to write; FILE.chain by default.
        verify: Decode the result and compare before writing it.
        json: Print one JSON object.
    """
    from chainrule_app.tasks.compression import compress_data, file_name

    name = file_name(file)
    if out is None and url_of(file) is not None:
        raise OptionError("out", "expected the file to write, as the data are behind a URL", "name it")
    target = out or file.with_name(f"{name}.chain")
    refuse_taken(target)
    data, began = file.read_bytes(), monotonic()
    with progress_bars() as progress:
        compressed = compress_data(data, name, run, progress=progress, verify=verify)
    write_bytes(target, compressed.data)
    seconds, size, written = monotonic() - began, len(data), len(compressed.data)
    values = {
        "file": shown(file),
        "out": shown(target),
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
    print(f"{one_line(shown(target))}: {size_of(size)} in {size_of(written)}{rate}; {checked}; {seconds:.1f} s")
    if compressed.note:
        print(compressed.note)


def decompress(run: RunPath, file: Path, /, *, out: Path | None = None, json: Switch = False) -> None:
    """Restore a file that `chainrule compress` wrote: the same bytes, or nothing.

    Args:
        file: The .chain file.
        out: File to write; its original name in the current folder by default.
        json: Print one JSON object.
    """
    from chainrule_app.tasks.compression import check_header, decompress_data
    from chainrule_app.tasks.container import read_container

    if file.is_dir():
        raise ValueError(f"{file}: expected a .chain file, got a directory")
    refuse_device(file)
    container, began = read_container(file.read_bytes(), str(file)), monotonic()
    check_header(container, str(file))
    target = out or Path(container.header["name"])
    refuse_taken(target)
    with progress_bars() as progress:
        data = decompress_data(container, str(file), run, progress=progress)
    write_bytes(target, data)
    values = {
        "file": shown(file),
        "out": shown(target),
        "bytes": len(data),
        "method": container.header["method"],
        "seconds": monotonic() - began,
    }
    if json:
        print(dump_json(values))
        return
    print(f"{one_line(shown(target))}: {size_of(len(data))}; its SHA-256 is right; {values['seconds']:.1f} s")


def refuse_taken(path: Path) -> None:
    """Raise FileExistsError if `path` exists, FileNotFoundError if its folder does not."""
    if is_there(path):
        raise FileExistsError(f"{path}: already exists: remove it, or name another file with --out")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder")


def export(
    run: RunPath, /, *, to: Literal["hub", "onnx", "torch-export", "web"], out: Path, json: Switch = False
) -> None:
    """Write a trained model as a folder for other software, or as a page for a browser.

    hub: config.json, model.safetensors, tokenizer.json and a model card. A Transformer without n-grams is written as
    GPT-2, GPT-NeoX or StableLM, which transformers opens; any other model as a run for chainrule. onnx and
    torch-export: graphs of step and forward with the state as input and output, for any batch size and length. web: one
    HTML file that works offline, for a text run of characters with a recurrent network alone (--plain).

    Args:
        to: The format.
        out: The folder to write, new or empty; for web the file.
        json: Print one JSON object.
    """
    from chainrule_app.exchange import export_run

    lines = export_run(run, to, out)
    written = sorted(out.iterdir()) if out.is_dir() else [out]
    files = {file.name: file.stat().st_size for file in written if file.is_file()}
    if json:
        print(dump_json({"run": shown(run.path), "to": to, "out": shown(out), "files": files, "notes": lines}))
        return
    sizes = ", ".join(f"{name} {size_of(size)}" for name, size in files.items())
    print(f"{one_line(shown(out if out.is_dir() else out.parent))}: {sizes}")
    for line in lines:
        print(line)


def import_(
    kind: Literal["nanogpt", "torch-rnn", "huggingface"],
    file: Path,
    /,
    *,
    into: Annotated[Path, Parameter(name="--out")],
    vocabulary: Path | None = None,
    start: str | None = None,
    embedding: str | None = None,
    activation: str | None = None,
    overwrite: Switch = False,
    json: Switch = False,
) -> None:
    """Make a run of a language model that another program trained: nanogpt, torch-rnn or huggingface.

    The run has exactly the conditionals of the imported model; sample, score and the other verbs work as usual.
    Nothing in a checkpoint is executed. What a checkpoint does not say and is assumed is printed.

    Args:
        kind: nanogpt, a checkpoint of nanoGPT; torch-rnn, the state dict of an embedding, nn.LSTM, nn.GRU or nn.RNN,
            and a linear layer; huggingface, a folder with GPT-2.
        file: The checkpoint, or the folder.
        into: The run directory.
        vocabulary: The symbols: a tokenizer.json, JSON that lists or numbers the symbols, or a text with every
            character once, in order; required unless the folder has a tokenizer.json.
        start: Symbol before the first one; <|endoftext|> if the vocabulary has it, else the line feed.
        embedding: Of torch-rnn, the name of the embedding's tensor, or one-hot for a model without an embedding;
            told by shapes, biases and names by default.
        activation: Of torch-rnn with an nn.RNN, tanh (default) or relu; of nanogpt, gelu (default), gelu-tanh (before
            2023) or relu.
        overwrite: Replace the run in --out.
        json: Print one JSON object.
    """
    from chainrule_app.exchange import import_model
    from chainrule_app.tasks.text.run import TextRun

    options = {"embedding": embedding, "activation": activation}
    run = import_model(kind, file, into, vocabulary=vocabulary, start=start, overwrite=overwrite, **options)
    weights = sum(weight.numel() for weight in run.model.parameters())
    name = run.config["model"]["name"]
    size = len(TextRun.open(into).vocabulary)
    if json:
        print(dump_json({"run": shown(into), "model": name, "parameters": weights, "vocabulary_size": size}))
        return
    print(f"{name}: {weights:,} weights, {size:,} symbols")
    print(f"run:  {quoted(into)}\nnext: chainrule sample {quoted(into)}")


_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def serve(
    *runs: Path,
    port: Annotated[int, Range(0, 65535)] = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    cors: str = "",
    drain: Annotated[float, Range(0.0, 3600.0)] = 20.0,
    workers: Annotated[int, Range(1, 1024)] = 1,
    device: Device = "auto",
    open_page: Annotated[bool, Parameter(name="--open", negative=())] = False,
) -> None:
    """Serve trained runs: a page to play with in a browser, OpenAI-compatible completions, and a JSON API.

    Needs three packages: pip install fastapi uvicorn prometheus-client. Ctrl-C stops the server.

    Args:
        runs: Run directories, of any tasks.
        port: Port to listen on; 0 takes a free one.
        host: Address or name to listen on; any but the default lets other machines reach the server.
        token: Secret that every request must carry (Authorization: Bearer TOKEN); by default that of the environment
            variable CHAINRULE_TOKEN, if there is one.
        cors: Sites whose pages may ask this server, separated by commas, such as https://example.org; none by default.
        drain: Seconds that requests under way have to end after SIGTERM; new ones are refused meanwhile.
        workers: Processes that answer; each holds the runs in memory.
        device: Where to compute: auto, cpu, cuda or mps; auto draws texts on the processor.
        open_page: Open the page in a browser.
    """
    if not runs:
        raise ValueError("RUN: expected at least one run directory, got none")
    token = os.environ.get(TOKEN) or None if token is None else token
    origins = tuple(filter(None, (origin.strip().rstrip("/") for origin in cors.split(","))))
    for origin in origins:
        if not re.fullmatch(r"https?://[^/\s*]+", origin):
            raise OptionError("cors", f"expected sites such as https://example.org, got {origin!r:.80}")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise OptionError("token", "expected printable ASCII characters without surrounding blanks")
    paths: dict[str, Path] = {}
    for path in runs:
        open_run(path)  # what is no run is told before torch is imported
        name = path.resolve().name
        if name in paths:
            raise ValueError(f"{path}: another run is called {name} too: rename one of the two directories")
        paths[name] = path
    _serve(
        paths, port, host, workers,
        token=token, origins=origins, drain=drain, device=device, open_page=open_page,
    )  # fmt: skip


TOKEN = "CHAINRULE_TOKEN"  # the environment variable


def demo(
    *,
    port: Annotated[int, Range(0, 65535)] = 8000,
    open_page: Annotated[bool, Parameter(name="--open", negative="--no-open")] = True,
) -> None:
    """Play with small trained runs that come with chainrule, in a browser: nothing is trained or downloaded.

    A text, names, digits, a table, a series and tunes. Ctrl-C stops the server.

    Args:
        port: Port to listen on; 0 takes a free one.
        open_page: Open the page in a browser.
    """
    paths = {path.parent.name: path.parent for path in sorted(DEMO.glob("*/config.json"))}
    _serve(paths, port, "127.0.0.1", open_page=open_page)


DEMO = Path(__file__).parents[1] / "demo"  # runs that benchmarks/demo_runs.py trains


def _serve(
    paths: dict[str, Path], port: int, host: str, workers: int = 1, *, device: str = "auto", **options: Any
) -> None:
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ValueError(f"serve: needs packages that are not installed: pip install {' '.join(missing)}")
    from chainrule_app.serve.listening import listen

    if device not in ("auto", "cpu"):  # an absent one is told before anything is loaded
        for path in paths.values():
            type(open_run(path)).device(device)
    options |= {"host": host, "device": device}
    with listen(host, port) as listening:
        print(f"loading {', '.join(paths)} …", file=sys.stderr, flush=True)
        if workers > 1:
            from chainrule_app.serve.workers import serve_in_processes

            serve_in_processes(paths, listening, workers, **options)
            return
        from chainrule_app.fitting import load
        from chainrule_app.serve.server import serve_runs

        serve_runs({name: load(path) for name, path in paths.items()}, listening, **options)

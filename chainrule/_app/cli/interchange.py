"""`chainrule export RUN` and `chainrule import KIND FILE`: models to and from other software."""

from pathlib import Path
from typing import Any, Literal

from chainrule._app.cli.signature import joined_help, verb_for
from chainrule._app.tasks.display import Switch, Verb, dump_json, quoted, size_of
from chainrule._app.tasks.task import Task
from chainrule._printing import one_line


@verb_for(Task)
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


def import_verb(task: type[Task[Any]]) -> Verb:
    """Make a run of a language model that another program trained: nanogpt, torch-rnn or huggingface."""
    import_.__doc__ = joined_help(import_.__doc__ or "", "")  # paragraphs in a line each, as in all verbs
    return import_


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
    """Make a run of a language model that another program trained.

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
    from chainrule.interchange import import_model

    run = import_model(kind, file, out, vocabulary=vocabulary, start=start, overwrite=overwrite)
    weights = sum(weight.numel() for weight in run.model.parameters())
    name = run.config["model"]["name"]
    size = len(run.model.bias_ho)  # type: ignore[arg-type]  # a module's attributes are tensors or modules to mypy
    if json:
        print(dump_json({"run": str(out), "model": name, "parameters": weights, "vocabulary_size": size}))
        return
    print(f"{name}: {weights:,} weights, {size:,} symbols")
    print(f"run:  {quoted(out)}\nnext: chainrule sample {quoted(out)}")

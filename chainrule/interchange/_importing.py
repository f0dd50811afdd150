"""Runs made of models that were trained elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chainrule._app.tasks.config import Duration, Fingerprint, RunConfig
from chainrule._app.tasks.run_directory import VOCABULARY, WEIGHTS, TemporaryFolder, refuse_existing
from chainrule._app.tasks.text.options import MODELS, TextData, TextTraining
from chainrule._app.tasks.text.task import TextCounts, TextFacts, TextTask
from chainrule.data._atomic import read_json
from chainrule.data._text import fingerprint
from chainrule.interchange._checkpoint import Checkpoint
from chainrule.interchange._foreign import Foreign, gpt2, nanogpt, recurrent
from chainrule.interchange._symbols import Symbols, read_symbols
from chainrule.training import save_weights

if TYPE_CHECKING:
    from chainrule._app.run import Run

Kind = Literal["nanogpt", "torch-rnn", "huggingface"]


def import_model(
    kind: Kind,
    path: str | Path,
    out: str | Path | None = None,
    *,
    vocabulary: str | Path | None = None,
    start: str | None = None,
    overwrite: bool = False,
) -> "Run":
    """Make a run of a language model that another program trained; its conditionals equal that model's.

    The first symbol is predicted after a start symbol, which takes the embedding of one that the model knows: the
    conditionals of x equal the source model's after reading (start, x_1, ..., x_{T-1}).

    Args:
        kind: "nanogpt", a checkpoint of nanoGPT; "torch-rnn", the state dict of an embedding, an nn.LSTM, nn.GRU or
            nn.RNN, and a linear layer; "huggingface", a folder of GPT-2 with config.json, model.safetensors and
            tokenizer.json.
        path: the checkpoint, or the folder.
        out: the run directory; a temporary one, which `Run.save` moves, by default.
        vocabulary: the symbols: a tokenizer.json, JSON with the symbols in order or with a number each, or a text with
            every character once, in order. A folder has its own.
        start: the symbol that the first one follows; by default <|endoftext|> if there is one, else the line feed.
        overwrite: whether to replace a run in `out`.

    Raises:
        FileNotFoundError: a file is missing.
        FileExistsError: there is something in `out` already.
        ValueError: a file is damaged, holds code, or describes an unsupported model.
    """
    from chainrule._app.run import Run

    path = Path(path)
    if out is not None:
        refuse_existing(Path(out), overwrite=overwrite)
    source, foreign, symbols = _read(kind, path, None if vocabulary is None else Path(vocabulary), start)
    folder = TemporaryFolder()
    run = Run(_written(folder.path, foreign, symbols, source), folder)
    if out is not None:
        run.save(out, overwrite=overwrite)
    return run


def _read(kind: Kind, path: Path, vocabulary: Path | None, start: str | None) -> tuple[Path, Foreign, Symbols]:
    """Read the file of weights, the model, and its vocabulary."""
    if kind == "huggingface":
        if not path.is_dir():
            raise ValueError(f"{path}: expected a folder with config.json, model.safetensors and tokenizer.json")
        source, config = path / "model.safetensors", path / "config.json"
        for file in (config, source):
            if not file.is_file():
                raise FileNotFoundError(f"{file}: no such file: expected a folder of one file of weights")
        symbols = read_symbols(path / "tokenizer.json" if vocabulary is None else vocabulary, start=start)
        return source, gpt2(Checkpoint(source), symbols, read_json(config)), symbols
    readers = {"nanogpt": nanogpt, "torch-rnn": recurrent}
    if kind not in readers:
        raise ValueError(f"kind: expected nanogpt, torch-rnn or huggingface, got {kind!r:.40}")
    symbols = read_symbols(vocabulary, start=start)
    return path, readers[kind](Checkpoint(path), symbols), symbols


def _written(folder: Path, foreign: Foreign, symbols: Symbols, source: Path) -> TextTask:
    """Write a run directory as training leaves it, without text and checkpoint."""
    none = TextCounts(elements=0, lines=0, unknown=0, characters=0, bytes=0)
    config = RunConfig(
        sources={"source": None, "validation": None, "tokenizer": None},
        data=TextData(level=symbols.vocabulary.level, validation_fraction=0.01),  # type: ignore[arg-type]  # a str to mypy
        model=foreign.model,
        options=MODELS[foreign.model].options(**foreign.options),
        duration=Duration(),
        training=TextTraining(
            batch_size=32, optimiser="adamw", learning_rate=1e-3, weight_decay=0.01, kneser_ney_order=0
        ),
        facts=TextFacts(source=Fingerprint(**fingerprint(source)), validation=None, train=none, valid=none),
    )
    task = TextTask.create(folder, config)
    symbols.vocabulary.save(folder / VOCABULARY)
    model = task.new_model(0)
    model.load_state_dict(foreign.weights)
    save_weights(folder / WEIGHTS, model, {})
    return task

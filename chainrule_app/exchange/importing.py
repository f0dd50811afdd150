"""Runs made of models that were trained elsewhere; nothing in a checkpoint is executed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chainrule.data import BPEVocabulary
from chainrule.files import read_json
from chainrule.option_error import OptionError
from chainrule.printing import printable
from chainrule.training import save_weights
from chainrule_app.exchange.checkpoint_file import Checkpoint, Foreign
from chainrule_app.exchange.gpt2 import gpt2, nanogpt
from chainrule_app.exchange.symbols import Symbols, read_symbols
from chainrule_app.exchange.torch_rnn import recurrent
from chainrule_app.readers.sources import fingerprint
from chainrule_app.tasks.config import Duration, Fingerprint, RunConfig
from chainrule_app.tasks.run_directory import VOCABULARY, WEIGHTS, TemporaryFolder, refuse_taken
from chainrule_app.tasks.text.options import MODELS, TextData, TextTraining
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.tasks.text.task import TextCounts, TextFacts

if TYPE_CHECKING:
    from chainrule_app.run import Run

Kind = Literal["nanogpt", "torch-rnn", "huggingface"]
_OPTIONS = {"nanogpt": ("activation",), "torch-rnn": ("embedding", "activation"), "huggingface": ()}


def import_model(
    kind: Kind,
    path: str | Path,
    out: str | Path | None = None,
    *,
    vocabulary: str | Path | None = None,
    start: str | None = None,
    embedding: str | None = None,
    activation: str | None = None,
    overwrite: bool = False,
) -> "Run":
    """Make a run of a language model that another program trained; its conditionals equal that model's.

    The first symbol is predicted after a start symbol, which takes the embedding of one that the model knows: the
    conditionals of x equal the source model's after reading (start, x_1, ..., x_{T-1}). What the file does not say and
    is assumed is printed on standard error.

    Args:
        kind: "nanogpt", a checkpoint of nanoGPT; "torch-rnn", the state dict of an embedding, an nn.LSTM, nn.GRU or
            nn.RNN, and a linear layer; "huggingface", a folder of GPT-2 with config.json, model.safetensors and
            tokenizer.json.
        path: the checkpoint, or the folder.
        out: the run directory; a temporary one, which `Run.save` moves, by default.
        vocabulary: the symbols: a tokenizer.json, JSON with the symbols in order or with a number each, or a text with
            every character once, in order. A folder has its own.
        start: the symbol that the first one follows; by default `<|endoftext|>` if there is one, else the line feed.
        embedding: of "torch-rnn", the name of the embedding's tensor, or "one-hot" for a model without one; by default
            told by shapes, biases and names.
        activation: of "torch-rnn" with an nn.RNN, "tanh" (default) or "relu"; of "nanogpt", "gelu" (default),
            "gelu-tanh" (before 2023) or "relu".
        overwrite: whether to replace a run in `out`.

    Raises:
        FileNotFoundError: a file is missing.
        FileExistsError: there is something in `out` already.
        ValueError: a file is damaged, holds code, describes an unsupported model, or leaves open which tensor is which.
    """
    from chainrule_app.run import Run

    path = Path(path)
    if out is not None:
        refuse_taken(Path(out), overwrite=overwrite)
    options = {"embedding": embedding, "activation": activation}
    source, foreign, symbols = _read(kind, path, None if vocabulary is None else Path(vocabulary), start, options)
    first = () if start is not None else (f"the first symbol follows {symbols.start_name!r} (start)",)
    words = ("symbols are words, separated by white space",) if symbols.vocabulary.level == "word" else ()
    for line in (*foreign.assumed, *words, *first):
        print(printable(f"assumed: {line}"), file=sys.stderr)
    folder = TemporaryFolder()
    run = Run(_written(folder.path, foreign, symbols, source), folder)
    if out is not None:
        run.save(out, overwrite=overwrite)
    return run


def _read(
    kind: Kind, path: Path, vocabulary: Path | None, start: str | None, options: dict[str, str | None]
) -> tuple[Path, Foreign, Symbols]:
    """Read the file of weights, the model, and its vocabulary; `options` say what the file does not."""
    if kind not in _OPTIONS:
        raise OptionError("kind", f"expected {', '.join(_OPTIONS)}, got {kind!r:.40}")
    if extra := [name for name, value in options.items() if value is not None and name not in _OPTIONS[kind]]:
        raise ValueError(f"{extra[0]}: {kind} leaves nothing to tell: leave it out")
    options = {name: options[name] for name in _OPTIONS[kind]}
    if kind == "huggingface":
        if not path.is_dir():
            raise ValueError(f"{path}: expected a folder with config.json, model.safetensors and tokenizer.json")
        source, config = path / "model.safetensors", path / "config.json"
        for file in (config, source):
            if not file.is_file():
                raise FileNotFoundError(f"{file}: no such file: expected a folder of one file of weights")
        symbols = read_symbols(path / "tokenizer.json" if vocabulary is None else vocabulary, start=start)
        if vocabulary is None:
            _check_settings(path, symbols)
        return source, gpt2(Checkpoint(source), symbols, read_json(config)), symbols
    symbols = read_symbols(vocabulary, start=start)
    reader: Callable[..., Foreign] = nanogpt if kind == "nanogpt" else recurrent
    return path, reader(Checkpoint(path), symbols, **options), symbols


def _check_settings(folder: Path, symbols: Symbols) -> None:
    """Raise ValueError where other files of a folder change what tokenizer.json says, as transformers reads them."""
    settings, added = ({} if not file.is_file() else read_json(file) for file in map(folder.joinpath, _SETTINGS))
    if settings.get("add_prefix_space") is True:
        raise ValueError(
            f"{folder / _SETTINGS[0]}: add_prefix_space puts a space before every text, which loses text: set it to "
            "false if the model was trained without"
        )
    entries = settings.get("added_tokens_decoder")
    entries = entries.values() if isinstance(entries, dict) else ()
    contents = [*added, *(entry.get("content") for entry in entries if isinstance(entry, dict))]
    vocabulary = symbols.vocabulary
    known = vocabulary.pieces if isinstance(vocabulary, BPEVocabulary) else ()
    if missing := [content for content in contents if content not in known]:
        raise ValueError(
            f"{folder}: {missing[0]!r:.80} is an added token, but not in tokenizer.json: write the folder again with "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )


_SETTINGS = ("tokenizer_config.json", "added_tokens.json")


def _written(folder: Path, foreign: Foreign, symbols: Symbols, source: Path) -> TextRun:
    """Write a run directory as training leaves it, without text and checkpoint."""
    none = TextCounts(elements=0, lines=0, unknown=0, characters=0, bytes=0)
    config = RunConfig(
        sources={"source": None, "validation": None, "tokenizer": None},
        data=TextData(level=symbols.vocabulary.level, reading="stream", validation_fraction=0.01),  # type: ignore[arg-type]  # a str to mypy
        model=foreign.model,
        options=MODELS[foreign.model].options(**foreign.options),
        duration=Duration(),
        training=TextTraining(
            batch_size=32, optimiser="adamw", learning_rate=1e-3, weight_decay=0.01, kneser_ney_order=0
        ),
        facts=TextFacts(source=Fingerprint(**fingerprint(source)), validation=None, train=none, valid=none),
    )
    task = TextRun.create(folder, config)
    symbols.vocabulary.save(folder / VOCABULARY)
    model = task.new_model(0)
    model.load_state_dict(foreign.weights)
    save_weights(folder / WEIGHTS, model, {})
    return TextRun.open(folder)

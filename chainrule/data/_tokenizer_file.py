"""A `tokenizer.json` of the library `tokenizers`, as far as it holds byte-level byte-pair encoding."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chainrule.data._atomic import read_json
from chainrule.data._subwords import BPEVocabulary


@dataclass(frozen=True)
class TokenizerFile:
    """Subwords of a tokenizer.json.

    Attributes:
        vocabulary: its merges.
        numbers: the number that the file gives each symbol of the vocabulary.
        special: the numbers of its special symbols by name, such as <|endoftext|>.
    """

    vocabulary: BPEVocabulary
    numbers: list[int]
    special: dict[str, int]


def read_tokenizer(path: str | Path, *, eos: bool = False) -> TokenizerFile:
    r"""Read byte-level BPE as in GPT-2 (Radford et al. 2019); nothing in the file is executed.

    Its merges alone are taken, so that nothing is unknown. Symbols that no merge reaches are left out.

    Args:
        path: the file.
        eos: whether the newline ends a sequence; it is then `<eos>`, and in no other symbol.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: expected a tokenizer.json")
    content = read_json(path)
    model = content.get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{path}: expected a tokenizer.json with a model, got none")
    _check_kind(path, content, model)
    numbers, pairs = model.get("vocab"), model.get("merges")
    if not isinstance(numbers, dict) or not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise ValueError(f"{path}: vocab: expected a number for each symbol")
    merges = [_pair(path, pair) for pair in pairs] if isinstance(pairs, list) else []
    try:
        vocabulary = BPEVocabulary(merges, eos=eos)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    pieces = vocabulary.pieces
    if missing := [piece for piece in pieces if piece not in numbers]:
        raise ValueError(f"{path}: vocab: expected every byte and every merge, {missing[0]!r:.80} is missing")
    added = content.get("added_tokens")
    special = {
        token["content"]: token["id"]
        for token in (added if isinstance(added, list) else [])
        if isinstance(token, dict) and isinstance(token.get("content"), str) and type(token.get("id")) is int
    }
    return TokenizerFile(vocabulary, [numbers[piece] for piece in pieces], special)


def _pair(path: Path, pair: Any) -> tuple[str, str]:
    parts = pair.split(" ") if isinstance(pair, str) else pair
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f"{path}: merges: expected pairs of symbols, got {pair!r:.80}")
    return parts[0], parts[1]


def _check_kind(path: Path, content: dict[str, Any], model: dict[str, Any]) -> None:
    splitter = content.get("pre_tokenizer")
    splitter = splitter if isinstance(splitter, dict) else {}
    if splitter.get("type") == "Sequence" and isinstance(splitter.get("pretokenizers"), list):
        splitter = splitter["pretokenizers"][0] if len(splitter["pretokenizers"]) == 1 else {}
    wrong = {
        f"the model {model.get('type')!r:.40}": model.get("type") != "BPE",
        "another way to split words": splitter.get("type") != "ByteLevel" or splitter.get("use_regex") is False,
        "a space put before the text": splitter.get("add_prefix_space") is not False,
        "a normalizer": content.get("normalizer") is not None,
        "ignore_merges": bool(model.get("ignore_merges")),
        "byte_fallback": bool(model.get("byte_fallback")),
        "a suffix of words": bool(model.get("end_of_word_suffix") or model.get("continuing_subword_prefix")),
    }
    if misfits := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ValueError(
            f"{path}: expected byte-level BPE as in GPT-2, got a tokenizer with {misfits[0]}: fit --level bpe"
        )

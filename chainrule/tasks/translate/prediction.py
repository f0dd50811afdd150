"""Sentences in, their translations out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from chainrule.tasks.translate.searching import Translation, Translator
    from chainrule.tasks.translate.task import TranslateTask

_TOGETHER = 4096  # sentences read before they are sorted by length and translated


@dataclass(frozen=True)
class TranslationOptions:
    """Translate sentences, a line each.

    An empty line is answered by an empty line. With --n-best, each translation has a line of its own: the number of the
    sentence, the log-probability and the text, separated by tabs.

    Args:
        file: Sentences, a line each, as those of training are; .gz too; - is standard input.
        json: Print a JSON object for each sentence.
    """

    beam: int = 5
    """Prefixes kept alive by the search; 1 is greedy."""
    n_best: int = 1
    """Translations of each sentence, at most as many as --beam."""
    length_penalty: float = 1.0
    """α of the score log p / length^α by which translations are ranked."""
    max_length: int | None = None
    """Most symbols of a translation; some more than training ever saw if not given."""
    attention: Path | None = None
    """An image of what the translation of the first sentence attended to, .png, .svg or .pdf."""


def translate(run: "TranslateTask", file: str, options: TranslationOptions, *, out: Path | None, device: str) -> Answer:
    """Translate the sentences of a file."""
    check_search(options.beam, options.n_best, options.length_penalty, options.max_length)
    translator = translator_of(run, options.max_length, device)
    if options.attention is not None and not translator.model.has_attention:
        raise ValueError("--attention: expected a run with attention, got one that reads a fixed vector")
    sentences = read_sources(run, file)

    def records() -> Iterator[Record]:
        if options.attention is not None:
            yield _drawn(translator, sentences, file, options.attention, options)
        for first in range(0, len(sentences), _TOGETHER):
            part = sentences[first : first + _TOGETHER]
            found = translator.search(
                [text for _, text in part],
                beam_size=options.beam,
                n_best=options.n_best,
                length_penalty=options.length_penalty,
            )
            for (line, text), answers in zip(part, found, strict=True):
                yield _record(line, text, answers, numbered=options.n_best > 1)

    def closing() -> Iterable[str]:
        if out is not None:
            yield f"{len(sentences):,} sentences translated into {out}"

    return Answer(records(), closing=closing)


def check_search(beam: int, n_best: int, length_penalty: float, max_length: int | None) -> None:
    """Raise ValueError for a search that cannot be."""
    if beam < 1:
        raise ValueError(f"--beam: expected a whole number >= 1, got {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"--n-best: expected 1 to --beam, {beam}, got {n_best}")
    if not 0 <= length_penalty < float("inf"):
        raise ValueError(f"--length-penalty: expected a number >= 0, got {length_penalty}")
    if max_length is not None and max_length < 1:
        raise ValueError(f"--max-length: expected a whole number >= 1, got {max_length}")


def translator_of(run: "TranslateTask", max_length: int | None, device: str) -> "Translator":
    """The trained model with its vocabularies."""
    from chainrule.tasks.translate.searching import Translator
    from chainrule.training.computation import multiply_dtype
    from chainrule.training.parallel import choose_device

    chosen = choose_device(device)
    model, pairs, dtype = run.model(chosen), run.pairs, multiply_dtype(run.config.training.precision, chosen)
    longest = run.longest if max_length is None else max_length + 1  # <eos> is counted there
    return Translator(model, pairs.source_vocabulary, pairs.target_vocabulary, longest, dtype)


def read_sources(run: "TranslateTask", file: str) -> list[tuple[int, str]]:
    """The sentences of a file with the numbers of their lines, all of them checked.

    Raises:
        ValueError: one is longer than the run allows; the message names the file and the line.
    """
    from chainrule.data.pairs import encode_sentence, read_sentences

    vocabulary, name = run.pairs.source_vocabulary, "standard input" if file == "-" else file
    sentences = [(line, text.strip()) for line, text in read_sentences(file)]
    for line, text in sentences:
        encode_sentence(vocabulary, text, run.data.max_length, name, line)
    return sentences


def _record(line: int, source: str, answers: "Sequence[Translation]", *, numbered: bool) -> Record:
    values = {
        "line": line,
        "source": source,
        "translation": answers[0].text,
        "n_best": [
            {"text": answer.text, "log_prob": answer.log_prob, "score": answer.score, "ended": answer.ended}
            for answer in answers
        ],
    }
    shown = [f"{line}\t{answer.log_prob:.4f}\t{answer.text}" if numbered else answer.text for answer in answers]
    return Record(values, "\n".join(shown))


def _drawn(
    translator: "Translator", sentences: Sequence[tuple[int, str]], file: str, path: Path, options: TranslationOptions
) -> Record:
    """Draw what the translation of the first sentence attended to."""
    from chainrule.diagnostics.attention_map import attention_map
    from chainrule.tasks.page import save_figure

    source = next((text for _, text in sentences if text), None)
    if source is None:
        raise ValueError(f"--attention: {file} has no sentence to draw")
    [[best]] = translator.search([source], beam_size=options.beam, length_penalty=options.length_penalty)
    save_figure(attention_map(translator.attention(source, best.text), *translator.symbols(source, best.text)), path)
    return Record({}, f"what the translation of {source!r:.60} attended to: {path}", notice=True)

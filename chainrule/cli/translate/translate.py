"""`chainrule translate RUN FILE`: sentences in, their translations out."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from chainrule.runs.translate import TranslateRun
    from chainrule.runs.translating import Translation, Translator

_TOGETHER = 4096  # sentences read before they are sorted by length and translated


def translate(
    run: Path,
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    beam: int = 5,
    n_best: int = 1,
    length_penalty: float = 1.0,
    max_length: int | None = None,
    out: Path | None = None,
    attention: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Translate sentences, a line each.

    An empty line is answered by an empty line. With --n-best, each translation has a line of its own: the number of the
    sentence, the log-probability and the text, separated by tabs.

    Args:
        run: The run directory.
        file: Sentences, a line each, as those of training are; .gz too; - is standard input.
        beam: Prefixes kept alive by the search; 1 is greedy.
        n_best: Translations of each sentence, at most as many as --beam.
        length_penalty: α of the score log p / length^α by which translations are ranked.
        max_length: Most symbols of a translation; some more than training ever saw if not given.
        out: A file to write to; standard output if not given.
        attention: A picture of what the translation of the first sentence attended to, .png, .svg or .pdf.
        json: Print a JSON object for each sentence.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.runs.translate import TranslateRun

    check_search(beam, n_best, length_penalty, max_length)
    opened = TranslateRun.open(run)
    if attention is not None and opened.options.attention == "none":
        raise ValueError("--attention: expected a run with attention, got one that reads a fixed vector")
    translator = translator_of(opened, max_length, device)
    sentences = read_sources(opened, file)
    if attention is not None:
        first = next((text for _, text in sentences if text), None)
        if first is None:
            raise ValueError(f"--attention: {file} has no sentence to draw")
        _draw(translator, first, attention, beam, length_penalty)
    lines = _lines(translator, sentences, beam, n_best, length_penalty, json=json)
    if out is None:
        for line in lines:
            print(line)
        return
    from chainrule.data.atomic import write_text

    write_text(out, "".join(f"{line}\n" for line in lines))
    print(f"{len(sentences):,} sentences translated into {out}", file=sys.stderr)


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


def translator_of(run: "TranslateRun", max_length: int | None, device: str) -> "Translator":
    """The trained model with its vocabularies."""
    from chainrule.runs.translating import Translator
    from chainrule.training.parallel import choose_device
    from chainrule.training.precision import multiply_dtype

    chosen = choose_device(device)
    model, pairs, dtype = run.model(chosen), run.pairs, multiply_dtype(run.config.training.precision, chosen)
    longest = run.longest if max_length is None else max_length + 1  # <eos> is counted there
    return Translator(model, pairs.source_vocabulary, pairs.target_vocabulary, longest, dtype)


def read_sources(run: "TranslateRun", file: str) -> list[tuple[int, str]]:
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


def _lines(
    translator: "Translator",
    sentences: Sequence[tuple[int, str]],
    beam: int,
    n_best: int,
    length_penalty: float,
    *,
    json: bool,
) -> Iterator[str]:
    for first in range(0, len(sentences), _TOGETHER):
        part = sentences[first : first + _TOGETHER]
        found = translator.search(
            [text for _, text in part], beam_size=beam, n_best=n_best, length_penalty=length_penalty
        )
        for (line, text), answers in zip(part, found, strict=True):
            if json:
                yield dump_json(_record(line, text, answers))
            elif n_best > 1:
                for answer in answers:
                    yield f"{line}\t{answer.log_prob:.4f}\t{answer.text}"
            else:
                yield answers[0].text


def _record(line: int, source: str, answers: "Sequence[Translation]") -> dict[str, object]:
    return {
        "line": line,
        "source": source,
        "translation": answers[0].text,
        "n_best": [
            {"text": answer.text, "log_prob": answer.log_prob, "score": answer.score, "ended": answer.ended}
            for answer in answers
        ],
    }


def _draw(translator: "Translator", source: str, path: Path, beam: int, length_penalty: float) -> None:
    from chainrule.cli.figures import save_figure
    from chainrule.diagnostics.attention_map import attention_map

    [[best]] = translator.search([source], beam_size=beam, length_penalty=length_penalty)
    weights, given, written = translator.attention(source, best.text)
    save_figure(attention_map(weights, given, written), path)
    print(f"what the translation of {source!r:.60} attended to: {path}", file=sys.stderr)

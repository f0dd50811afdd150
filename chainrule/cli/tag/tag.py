"""`chainrule tag RUN FILE`: sentences with a tag for every word."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from chainrule.data.tagged import ConllFile
    from chainrule.runs.tag import TagRun


def tag(
    run: Path,
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    out: Path | None = None,
    text: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    n_best: int | None = None,
    device: str = "auto",
) -> None:
    """Tag sentences: the file comes back with the tags in their column, everything else as it was.

    Args:
        run: The run directory.
        file: Sentences in columns as those of training, with tags or without, or a word a line; .gz too; - is standard
            input. Empty sentences come back empty.
        out: A file to write to; standard output if not given.
        text: Each line of FILE is a sentence, its words separated by blanks.
        json: Print a JSON object for each sentence: words, tags, the probability of each, the log-probability of all.
        n_best: With --json: the so many most probable tag sequences of each sentence, with their log-probabilities.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.cli.tag.reading import sentences_of
    from chainrule.runs.tag import TagRun

    if n_best is not None and n_best < 1:
        raise ValueError(f"--n-best: expected a whole number >= 1, got {n_best}")
    if n_best is not None and not json:
        raise ValueError("--n-best: columns hold one tag a word: say --json too")
    opened = TagRun.open(run)
    sentences = sentences_of(opened, file, tagged=False, text=text)
    lines = _as_json(opened, sentences, n_best, device) if json else _as_columns(opened, sentences, device)
    if out is None:
        for line in lines:
            print(line)
        return
    from chainrule.data.atomic import write_text

    write_text(out, "".join(f"{line}\n" for line in lines))
    words = sum(len(sentence.words) for sentence in sentences.sentences)
    print(f"{words:,} words of {len(sentences.sentences):,} sentences in {out}", file=sys.stderr)


def _as_columns(run: "TagRun", file: "ConllFile", device: str) -> Iterator[str]:
    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.runs.tag_judge import predicted_tags
    from chainrule.training.parallel import choose_device

    model, vocabulary = run.model(choose_device(device)), run.vocabulary
    numbers = number_sentences(file.sentences, vocabulary)
    yield from file.with_tags(predicted_tags(model, tagged_evaluation(numbers), vocabulary))


def _as_json(run: "TagRun", file: "ConllFile", n: int | None, device: str) -> Iterator[str]:
    import torch

    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.state import map_state
    from chainrule.training.parallel import choose_device

    chosen = choose_device(device)
    model, tags = run.model(chosen), run.vocabulary.tags
    sentences = iter(file.sentences)
    with torch.no_grad():
        for batch in tagged_evaluation(number_sentences(file.sentences, run.vocabulary)):
            assert batch.lengths is not None
            found = model(map_state(lambda part: part.to(chosen), batch.context), batch.lengths.to(chosen))
            paths, log_probs = found.n_best(n or 1)
            shares = found.marginals.gather(2, paths[:, 0].clamp_min(0).unsqueeze(2)).squeeze(2)
            for row, length in enumerate(batch.lengths.tolist()):
                alternatives = [
                    {"tags": [tags[tag] for tag in path[:length]], "log_prob": log_prob}
                    for path, log_prob in zip(paths[row].tolist(), log_probs[row].tolist(), strict=True)
                    if log_prob > -torch.inf
                ]
                sentence = next(sentences)
                record: dict[str, Any] = {
                    "line": sentence.line,
                    "words": list(sentence.words),
                    "tags": alternatives[0]["tags"],
                    "probabilities": shares[row, :length].tolist(),
                    "log_prob": alternatives[0]["log_prob"],
                }
                if n is not None:
                    record["n_best"] = alternatives
                yield dump_json(record)

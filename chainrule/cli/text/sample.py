"""`chainrule sample`: text drawn from a trained model."""

import sys
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.cli.display import dump_json

if TYPE_CHECKING:
    from chainrule.data.vocabulary import Ids, Vocabulary


def sample(
    run: Path,
    /,
    *,
    n: Annotated[int, Parameter(name=["-n", "--number"])] = 1,
    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    length: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    device: str = "cpu",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Draw from a trained model; shown are the options for a run on a text.

    `chainrule sample RUN --help` shows those for RUN.

    Args:
        run: The run directory.
        n: How many texts.
        prompt: What each text begins with.
        length: Symbols to draw after the prompt; a model of lines may end earlier, at the end of its line.
        temperature: 1 is the model's own distribution, below it is bolder, 0 always takes the likeliest symbol.
        top_k: Draw from the k likeliest symbols only.
        top_p: Draw from the likeliest symbols that together reach this probability.
        seed: The same seed gives the same text; a new one each time if not given.
        device: Where to compute: auto, cpu or cuda.
        json: Print one JSON object a text, with "prompt", "text", "elements" and "seed".
    """
    from chainrule.cli.text.drawing import Drawing
    from chainrule.heads.categorical import check_filters
    from chainrule.runs.text import TextRun
    from chainrule.training.parallel import choose_device

    if n < 1:
        raise ValueError(f"-n: expected a whole number >= 1, got {n}")
    if length < 1:
        raise ValueError(f"--length: expected a whole number >= 1, got {length}")
    check_filters(temperature, top_k, top_p)
    opened = TextRun.open(run)
    vocabulary = opened.vocabulary
    ids = encode_prompt(vocabulary, prompt)
    seed = randbelow(1 << 31) if seed is None else seed
    drawing = Drawing(
        opened.model(choose_device(device)),
        vocabulary,
        eos=vocabulary.eos if opened.data.reading == "lines" else None,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    if n == 1 and not json:
        sys.stdout.write(prompt)
        for piece in drawing.stream(ids, length, seed):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        return
    for number, (text, elements) in enumerate(drawing.texts(n, ids, length, seed), start=1):
        if json:
            record = {"prompt": prompt, "text": text, "elements": elements, "seed": seed}
            print(dump_json(record))
        else:
            print(f"=== sample {number} of {n} ===\n{prompt}{text}")


def encode_prompt(vocabulary: "Vocabulary", prompt: str) -> "Ids":
    """The symbols of a prompt.

    Raises:
        ValueError: a part of it was never seen in training.
    """
    ids = vocabulary.encode(prompt)
    if vocabulary.unknown is None or vocabulary.unknown not in ids:
        return ids
    if vocabulary.level == "word":
        parts, remedy = [word for word in prompt.split() if word != "<unk>"], "; write <unk> for a word not in the list"
    else:
        parts, remedy = list(dict.fromkeys(prompt)), ""
    unseen = [repr(part) for part in dict.fromkeys(parts) if vocabulary.unknown in vocabulary.encode(part)]
    if not unseen:
        return ids
    kind = "word" if vocabulary.level == "word" else "character"
    raise ValueError(
        f"--prompt: the model never saw the {kind}{'s' if len(unseen) > 1 else ''} {', '.join(unseen)}: "
        f"leave {'them' if len(unseen) > 1 else 'it'} out, or train on text that has "
        f"{'them' if len(unseen) > 1 else 'it'} (--level byte knows every character){remedy}"
    )

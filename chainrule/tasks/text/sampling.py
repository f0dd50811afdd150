"""Text drawn from a trained model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from chainrule.tasks.abilities import Answer, Record

if TYPE_CHECKING:
    from chainrule.data.vocabulary import Ids, Vocabulary
    from chainrule.tasks.text.task import TextTask


@dataclass(frozen=True)
class TextSampling:
    """Draw texts from a trained model.

    Args:
        n: How many texts.
        json: Print one JSON object a text, with "prompt", "text", "elements" and "seed".
    """

    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Beginning of each text."""
    length: int = 500
    """Symbols to draw after the prompt; a model of lines may end earlier, at the end of its line."""
    temperature: float = 1.0
    """1 is the model's own distribution, below it is bolder, 0 always takes the likeliest symbol."""
    top_k: int | None = None
    """Draw from the k likeliest symbols only."""
    top_p: float | None = None
    """Draw from the likeliest symbols that together reach this probability."""


def sample_text(run: "TextTask", n: int, options: TextSampling, *, seed: int, device: str, whole: bool) -> Answer:
    """Draw n texts; a single one comes in pieces unless it is wanted `whole`."""
    from chainrule.heads.categorical import check_filters
    from chainrule.tasks.text.sampler import Sampler

    if options.length < 1:
        raise ValueError(f"--length: expected a whole number >= 1, got {options.length}")
    check_filters(options.temperature, options.top_k, options.top_p)
    vocabulary = run.vocabulary
    if run.has_code:
        from chainrule.tasks.text.codes import sample_sentences

        return sample_sentences(run, n, options, seed=seed, device=device)
    ids = encode_prompt(vocabulary, options.prompt)
    sampler = Sampler(
        run.model(device),
        vocabulary,
        eos=vocabulary.eos if run.data.reading == "lines" else None,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
    )

    def pieces() -> Iterator[str]:
        yield options.prompt
        yield from sampler.stream(ids, options.length, seed)
        yield "\n"

    def records() -> Iterator[Record]:
        if n == 1 and not whole:
            yield Record({}, pieces())
            return
        for number, (text, elements) in enumerate(sampler.texts(n, ids, options.length, seed), start=1):
            values = {"prompt": options.prompt, "text": text, "elements": elements, "seed": seed}
            title = f"=== sample {number} of {n} ===\n" if n > 1 else ""
            yield Record(values, f"{title}{options.prompt}{text}")

    return Answer(records())


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

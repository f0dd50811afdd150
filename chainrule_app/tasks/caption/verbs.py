"""Caption images, compare captions with human references, and look inside a captioner."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.blocks import in_blocks
from chainrule_app.heavy import caption_data, modes, np, pair_data, torch
from chainrule_app.readers.origin import origin_of
from chainrule_app.results import Column, Report, Result
from chainrule_app.tasks.config import CheckedOptions, Switch
from chainrule_app.tasks.options import CaptionLength, LengthPenalty, NBestOptions, SearchOptions, Seed
from chainrule_app.tasks.output import attention_report, inspect_again

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from chainrule import TrainableModel
    from chainrule.data import Batch, WordVocabulary
    from chainrule.decoding import Decoded
    from chainrule.models import Captioner
    from chainrule.training import MetricValue, ValidationMetric
    from chainrule_app.readers.captions import Caption, ImageStore
    from chainrule_app.readers.images.source import Pixels
    from chainrule_app.readers.origin import Origin
    from chainrule_app.readers.row_order import Rows
    from chainrule_app.tasks.caption.task import CaptionData, CaptionTask

_COMPARED = 300  # held-out images whose captions are compared at each validation
_SHOWN = 2
_TOGETHER = 64  # images captioned in one batch


@dataclass(frozen=True)
class CaptionOptions(NBestOptions):
    """Write a caption for each image."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": "Image files, one or more.",
        "json": 'Print one JSON object per caption, with "image", "caption", "nats" and "proven".',
        "plot": "An image (.png, .svg, .pdf) that shows, for a single image, where the model looked for each word.",
    }

    length_penalty: LengthPenalty = 0.7
    max_length: CaptionLength | None = None
    """Maximum words of a caption; as in training by default."""


def caption(run: "CaptionTask", images: list[str], options: CaptionOptions, *, device: str) -> Result:
    pixels = [read_image(image, run.data) for image in images]
    model = run.model(device)
    best: dict[int, Tensor] = {}

    def rows() -> Iterator[Sequence[Any]]:
        results = search_captions(run, model, pixels, options)
        for index, (image, decoded) in enumerate(zip(images, results, strict=True)):
            best[index] = decoded.sequences[0]
            for text, log_prob in zip(words_of(decoded, run.vocabulary), decoded.log_probs.tolist(), strict=True):
                yield str(image), text, -log_prob, decoded.proven

    def figure(_: Result) -> "Figure":
        if len(images) > 1:
            raise OptionError("plot", f"expected a single image, got {len(images)}")
        return _looked(run, model, pixels[0], best[0])

    columns = [Column("image"), Column("caption"), Column("nats", 4), Column("proven", shown=False)]
    return Result(columns, rows(), main="caption", figure=figure)


def search_captions(
    run: "CaptionTask", model: "Captioner", images: "Sequence[Pixels]", options: CaptionOptions
) -> "Iterator[Decoded]":
    """Search the captions of each image (3, S, S); each caption has the log-likelihood that it has when read alone."""
    device, eos = modes.device_of(model), run.vocabulary.eos
    results = search(
        model,
        images,
        run.vocabulary,
        beam_size=options.beam,
        n_best=options.n_best,
        max_length=options.max_length or run.data.max_length,
        length_penalty=options.length_penalty,
    )
    for image, decoded in zip(images, results, strict=True):
        context = torch.from_numpy(image).unsqueeze(0).to(device)
        yield decoded.rescored(model, context, eos=eos, length_penalty=options.length_penalty)


def read_image(path: Any, data: "CaptionData") -> "Pixels":
    """Read an image file as pixels (3, S, S), fitted like the run's images."""
    from chainrule_app.readers import images as image_reader

    reading = image_reader.Reading(size=(data.image_size, data.image_size), colour="rgb", fit=data.fit)
    return image_reader.read_image(path, reading)


def _looked(run: "CaptionTask", model: "Captioner", pixels: "Pixels", symbols: "Tensor") -> "Figure":
    """Draw the attention for each word of a caption."""
    from chainrule_app.pages.attention_figures import image_attention

    if run.config.options.attention is None:
        raise OptionError("plot", "expected a run with attention, got one that reads a single vector")
    if not len(symbols):
        raise OptionError("plot", "the caption is empty, there is nothing to draw")
    words = [run.vocabulary.decode([symbol]) for symbol in symbols.tolist()]
    return image_attention(pixels, words, attention_over(model, pixels, symbols))


@dataclass(frozen=True)
class CaptionEvaluation(SearchOptions):
    """Compare a model's captions with human references: BLEU-1 to BLEU-4, and perplexity."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "The images: an archive (zip, tar) or a folder.",
    }

    captions: Path | None = None
    """Reference captions; any number for each image."""
    length_penalty: LengthPenalty = 0.7
    shuffle: Switch = False
    """Pair each caption with a wrong image, to measure what the model predicts from captions alone."""
    seed: Seed = 0
    """Seed of the shuffling."""


def evaluate_captioner(run: "CaptionTask", data: str | None, options: CaptionEvaluation, *, device: str) -> Result:
    from chainrule.metrics import caption_bleu

    if data is None or options.captions is None:
        raise OptionError("data", f"expected images, and their reference {option('captions')}", "give both")
    store = caption_data.ImageStore(data, run.data.image_size, run.data.fit)
    people = caption_data.captions_by_image(options.captions, store, lower_case=run.data.lower_case)
    names = list(people)
    shown_names = _turned(names, options.seed) if options.shuffle else names
    model, vocabulary = run.model(device), run.vocabulary
    results = search(
        model,
        (store.image(name) for name in shown_names),
        vocabulary,
        beam_size=options.beam,
        max_length=run.data.max_length,
        length_penalty=options.length_penalty,
    )
    written = [words_of(each, vocabulary)[0] for each in results]
    references = [[caption.text for caption in people[name]] for name in names]
    scores = {f"bleu_{order}": caption_bleu(written, references, order) for order in (1, 2, 3, 4)}
    perplexity = _perplexity(
        run, model, store, [people[name] for name in names], shown_names, origin_of(options.captions)
    )
    signature = scores["bleu_4"].signature
    figures = {
        "images": len(names),
        "perplexity": perplexity,
        "beam": options.beam,
        "shuffled": options.shuffle,
        **{name: score.value for name, score in scores.items()},
        "signature": signature,
    }
    return Result([], [], summary=lambda: figures, about={"measured": run.basis})


def _turned(names: Sequence[str], seed: int) -> list[str]:
    """Turn the names in a cycle drawn from the seed: none keeps its position."""
    if len(names) < 2:
        raise OptionError("shuffle", f"expected at least two images, got {len(names)}")
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    following = dict(zip(order, [*order[1:], order[0]], strict=True))
    return [names[following[index]] for index in range(len(names))]


def _perplexity(
    run: "CaptionTask",
    model: "Captioner",
    store: "ImageStore",
    people: "Sequence[Sequence[Caption]]",
    shown_names: Sequence[str],
    where: "Origin",
) -> float:
    """Return the perplexity of the reference captions, given the images `shown_names`."""
    from chainrule.data import Batch
    from chainrule.training import evaluate
    from chainrule_app.readers.ragged import Ragged

    vocabulary, longest = run.vocabulary, run.data.max_length

    def batches() -> "Iterator[Batch]":
        for image, captions in zip(shown_names, people, strict=True):
            rows = [pair_data.encode_sentence(vocabulary, each.text, longest, where, each.line) for each in captions]
            x, lengths = Ragged.of(rows).padded(np.arange(len(rows)))
            yield Batch(x, lengths, context=torch.from_numpy(store.image(image)).expand(len(rows), -1, -1, -1))

    return evaluate(model, batches()).perplexity


@dataclass(frozen=True)
class CaptionerInspection(CheckedOptions):
    """Look inside a trained captioner: the size of its parts, and where it looked for each word.

    Captions held-out images, or the image DATA, greedily. Prints the parts and how narrowly the decoder attends, and
    writes a page that shows each image once per word, bright where the model looked (HTML, one file, needs no network).
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "An image file; held-out images by default.",
    }

    rows: Annotated[int, Range(1, 64)] = 4
    """Number of held-out images."""


def inspect_captioner(run: "CaptionTask", file: str | None, options: CaptionerInspection, *, seed: int) -> Report:
    from chainrule_app.pages.attention_page import AttentionExample

    images = _images(run, file, options.rows)
    model, vocabulary = run.model(), run.vocabulary
    results = search(
        model, [pixels for _, pixels, _ in images], vocabulary, beam_size=1, max_length=run.data.max_length
    )
    examples = []
    for (name, pixels, people), decoded in zip(images, results, strict=True):
        look = look_again(model, pixels, decoded.sequences[0], vocabulary, ended=bool(decoded.ended[0]))
        [text] = words_of(decoded, vocabulary)
        lines = {"caption": text} | ({"people wrote": people[0]} if people else {})
        facts = {"image": name, "caption": text, "references": people}
        examples.append(AttentionExample(name, lines, facts, look.words, look.surprise, look.attention, image=pixels))
    command = inspect_again(run, file, rows=options.rows)
    return attention_report(run, model, examples, looks_at="places of the grid", command=command)


def _images(run: "CaptionTask", file: str | None, rows: int) -> "list[tuple[str, Pixels, list[str]]]":
    """Return images by name, with their reference captions if known."""
    if file is not None:
        return [(str(file), read_image(file, run.data), [])]
    valid = run.prepared.valid
    return [
        (f"held-out image {index + 1}", np.array(valid.images[index]), run.held_out_captions(index))
        for index in range(min(rows, len(valid)))
    ]


def search(
    model: "Captioner", images: "Iterable[np.ndarray]", vocabulary: "WordVocabulary", **options: Any
) -> "Iterator[Decoded]":
    """Search the most probable captions of each image (3, S, S), in order, with options of `beam_search`."""
    from chainrule.decoding import beam_search

    device = modes.device_of(model)
    for block in in_blocks(images, _TOGETHER):
        yield from beam_search(model, torch.from_numpy(np.stack(block)).to(device), eos=vocabulary.eos, **options)


def words_of(result: "Decoded", vocabulary: "WordVocabulary") -> list[str]:
    """Decode the captions of one image, best first."""
    return [vocabulary.decode(sequence.tolist()).strip() for sequence in result.sequences]


@dataclass(frozen=True)
class Look:
    """A caption as the model reads it again."""

    words: list[str]  # and, where it ended, the symbol of the end
    surprise: list[float]  # nats of each
    attention: "Tensor | None"  # (T, P) over the places of the grid; None for a model without attention


def look_again(
    model: "Captioner", image: "Pixels", symbols: "Tensor", vocabulary: "WordVocabulary", *, ended: bool
) -> Look:
    """Read a caption (T,) of an image (3, S, S) again: the surprise of each word, and where the model looked for it."""
    if ended:
        symbols = torch.cat([symbols, symbols.new_tensor([vocabulary.eos])])
    x, device = symbols.unsqueeze(0), modes.device_of(model)
    with torch.no_grad():
        conditionals = model(x, torch.from_numpy(image).unsqueeze(0).to(device))
    attention = None if model.attention is None else attention_over(model, image, symbols)
    words = [vocabulary.token(symbol) for symbol in symbols.tolist()]
    return Look(words, (-conditionals.log_prob(x)[0]).double().tolist(), attention)


def attention_over(model: "Captioner", image: "np.ndarray", symbols: "Tensor") -> "Tensor":
    """Return the attention over the P regions of an image (3, S, S) for each of T symbols, (T, P)."""
    device = modes.device_of(model)
    with torch.no_grad():
        return model.attended(symbols.unsqueeze(0).to(device), torch.from_numpy(image).unsqueeze(0).to(device))[0].cpu()


def caption_metric(run: "CaptionTask") -> "ValidationMetric":
    """Measure BLEU-4 of greedy captions of the first held-out images; show two of them."""
    from chainrule.metrics import caption_bleu
    from chainrule.training import MetricValue, ValidationMetric

    vocabulary, valid = run.vocabulary, run.prepared.valid
    references = [run.held_out_captions(image) for image in range(min(_COMPARED, len(valid)))]

    def answer(model: "TrainableModel", rows: "Rows") -> Sequence[str]:
        images = (valid.images[row] for row in rows)
        results = search(cast("Captioner", model), images, vocabulary, beam_size=1, max_length=run.data.max_length)
        return [words_of(each, vocabulary)[0] for each in results]

    def compare(rows: "Rows", captions: Sequence[str], step: int) -> "MetricValue":
        true = [references[row] for row in rows]
        examples = [f"{caption}   ({row[0]})" for caption, row in list(zip(captions, true, strict=True))[:_SHOWN]]
        return MetricValue("bleu", caption_bleu(captions, true).value, "\n".join(examples))

    return ValidationMetric(len(references), answer, compare)

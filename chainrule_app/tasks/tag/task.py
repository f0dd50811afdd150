"""Tags: sentences with a tag for every word, and a bidirectional tagger that learns them.

data/vocabulary.json                  words, characters, tags and the scheme of the tags
data/train.*, data/valid.*            the sentences as numbers
data/valid.json                       the words of the held-out sentences, to show
data/templates.safetensors            scores of templates, fitted before training
data/corpus.json                      counts and fingerprints
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.option_error import OptionError, option
from chainrule_app.heavy import modes, np, torch
from chainrule_app.printing import counted, measured_part, progress_bars
from chainrule_app.readers import tagged as tag_reader
from chainrule_app.readers.record_keys import keys_of
from chainrule_app.tasks._vectors import VECTORS, describe_vectors, fill_embedding, resolve_size
from chainrule_app.tasks.capabilities import CheckedRows
from chainrule_app.tasks.config import (
    Facts,
    Fingerprint,
    Parts,
    Planned,
    RunConfig,
)
from chainrule_app.tasks.likelihood_record import Basis
from chainrule_app.tasks.run_directory import DATA, WEIGHTS
from chainrule_app.tasks.size_schedule import describe_passes, record_resolved, resolve_decay, time_passes
from chainrule_app.tasks.tag.options import MODELS, TagData, TagTraining
from chainrule_app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import TrainableModel
    from chainrule.data import Batch
    from chainrule.layers import TemplateScores
    from chainrule.models import SequenceTagger
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import MetricValue, TrainingBatches, ValidationBatches, ValidationMetric
    from chainrule_app.readers.row_order import Rows
    from chainrule_app.readers.tagged.prepare import TaggedCorpus
    from chainrule_app.readers.tagged.vocabulary import TaggedVocabulary

_CHECKED_ROWS, _CHECKED_WORDS = 4, 12
_FEW_PASSES = 7.0  # over the sentences: on UD English EWT affixes alone are better at 5, and worse at 9
_WORD_DROPOUT_OF_FEW = 0.25


@dataclass(frozen=True)
class TagFacts(Facts):
    validation: Fingerprint | None
    conllu: bool
    column: str
    width: int  # number of columns in the file
    scheme: Literal["bio", "bioes"] | None  # tag scheme, if the tags mark spans
    repaired: int  # sentences with repaired tags
    converted: bool  # whether the tags were in IOB1
    sentences: Parts
    words: Parts
    different_words: int
    vectors: Fingerprint | None
    words_without_vector: int


class TagTask(Task["SequenceTagger"]):
    name = "tag"
    help = "Train a tagger on sentences with a tag for every word."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Sentences in columns, one word per line, separated by blank lines: CoNLL-U, or words and tags; .gz too.",
            needed="a file of tagged sentences",
        ),
        "validation": Source(
            "Sentences to hold out, which select the weights; a random part of DATA by default.", "--validation"
        ),
        "vectors": VECTORS,
    }
    Data = TagData
    Facts = TagFacts
    Training = TagTraining
    MODELS = MODELS
    PLAIN: ClassVar[dict[str, Any]] = {"template_passes": 0.0}
    PLANNED = ("template_passes",)
    PREPARED = f"{DATA}/corpus.json"
    NEXT = ("echo 'Time flies .' | chainrule tag {run} - --text", "chainrule evaluate {run} TEST")

    @classmethod
    def check_asked(cls, request: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(request, given)
        encoder = request.options.character_encoder
        if "affix_dropout" in given and encoder != "cnn+affixes":
            raise OptionError("affix_dropout", f"requires {option('character_encoder', 'cnn+affixes')}, got {encoder}")

    @cached_property
    def vocabulary(self) -> "TaggedVocabulary":
        return tag_reader.TaggedVocabulary.load(self.path / DATA / "vocabulary.json")

    def corpus(self) -> "TaggedCorpus":
        return tag_reader.open_tagged(self.path / DATA)

    def options_in_weights(self) -> dict[str, Any]:
        return {"template_passes": self.training.template_passes}

    def prepare(self, old: "TagTask | None" = None) -> dict[str, Any]:
        sources, options = self.config.sources, asdict(self.data)
        del options["tag_key"], options["spans"]  # of the records that were written as columns
        manifest = tag_reader.prepare_tagged(
            self.source,
            self.path / DATA,
            **options,
            validation=sources["validation"],
            seed=self.training.seed,
            vocabulary=None if old is None else old.vocabulary,
            vectors=sources.get("vectors"),
        ).manifest
        if self.training.template_passes and old is None:  # settled: by one process, before the others read them
            fitted_templates(self, self.training.template_passes)
        return manifest

    def plan(self, given: frozenset[str]) -> Planned:
        """Choose weight decay, template passes, word dropout and the character encoder from the number of passes."""
        batches, _ = self.batches((0, 1))
        config = resolve_decay(self.config, 2 * batches.steps_per_epoch)
        is_open = {
            "character_encoder": given.isdisjoint(("character_encoder", "affix_dropout")),
            "word_dropout": "word_dropout" not in given,
            "template_passes": config.training.template_passes is None,
        }
        if not any(is_open.values()):
            return Planned(config)
        (config, timed), passes = time_passes(self, Planned(config), batches)
        config = record_resolved(config, [name for name, left in is_open.items() if left])
        training, options = config.training, config.options
        if is_open["template_passes"]:
            training = replace(training, template_passes=default_passes(self, batches, passes))
        if passes < _FEW_PASSES and is_open["character_encoder"]:
            options = replace(options, character_encoder="affixes")
        if passes < _FEW_PASSES and is_open["word_dropout"]:
            training = replace(training, word_dropout=_WORD_DROPOUT_OF_FEW)
        return Planned(replace(config, options=options, training=training), timed)

    @property
    def network_identity(self) -> tuple[Any, ...]:
        return *super().network_identity, self.training.template_passes

    def choice(self) -> str:
        options, training = self.config.options, self.config.training
        passes = describe_passes(self.config, "words", "sentences")
        return (
            f"{passes}: character encoder {options.character_encoder}, word dropout {training.word_dropout:g}, "
            f"template passes {training.template_passes:g}"
        )

    def added_parts(self) -> Sequence[str]:
        return ["log-linear templates"] if self.training.template_passes else []

    def build(self) -> "SequenceTagger":
        if not self.training.template_passes or self.config.init is not None or (self.path / WEIGHTS).is_file():
            tagger = self._network()
        else:
            tagger = self._tagger(fitted_templates(self, self.training.template_passes))
        fill_embedding(self, tagger.embedding)
        return tagger

    def _network(self) -> "SequenceTagger":
        return self._tagger(new_templates(self) if self.training.template_passes else None)

    def _tagger(self, templates: "TemplateScores | None") -> "SequenceTagger":
        from chainrule.heads import TagConstraints

        options, vocabulary = self.config.options, self.vocabulary
        constraints = None
        if options.head == "crf" and vocabulary.scheme is not None:
            constraints = {"bio": TagConstraints.bio, "bioes": TagConstraints.bioes}[vocabulary.scheme](
                vocabulary.standard(vocabulary.tags)
            )
        tagger: SequenceTagger = self.built(
            num_tags=len(vocabulary.tags),
            vocab_size=vocabulary.word_symbols,
            num_characters=vocabulary.character_symbols,
            constraints=constraints,
            templates=templates,
        )
        return tagger

    @classmethod
    def resolve_reading(cls, request: RunConfig) -> RunConfig:
        return resolve_size(request)

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        corpus, training = self.corpus(), self.training
        batches = tag_reader.tagged_batches(
            corpus.train, corpus.vocabulary.counts, training.batch_size, training.word_dropout, training.seed, shard
        )
        return batches, lambda: tag_reader.tagged_evaluation(corpus.valid)

    def introduce(self) -> Iterable[str]:
        facts, tags = self.facts, self.vocabulary.tags
        form = f"{'CoNLL-U' if facts.conllu else 'columns'} with tags in column {facts.column}"
        form = "texts with spans" if self.data.spans else form
        held_out = "held out" if facts.validation is None else f"held out ({facts.validation.name})"
        yield (
            f"{facts.source.name}, {form}: "
            f"{counted(facts.sentences.train, 'sentence')} ({counted(facts.words.train, 'word')}) to train on, "
            f"{counted(facts.sentences.valid, 'sentence')} ({counted(facts.words.valid, 'word')}) {held_out}"
        )
        if self.data.tag_key is not None:
            yield f"{facts.source.name}: {keys_of(self.data)}"
        first = " ".join(tags[:20]) + (" ..." if len(tags) > 20 else "")
        yield f"{counted(len(tags), 'tag')}: {first}"
        yield from describe_vectors(self, len(self.vocabulary.words))
        if facts.scheme is not None:
            mended = f"; impossible tags repaired in {facts.repaired:,}" if facts.repaired else ""
            converted = ", converted from IOB1" if facts.converted else ""
            yield f"the tags mark spans in {facts.scheme.upper()}{converted}: entity F1 selects the weights{mended}"

    def validation_metric(self) -> "ValidationMetric":
        return tag_metric(self.corpus())

    @property
    def metric_name(self) -> str:
        return "f1" if self.facts.scheme else "accuracy"

    def best(self, evaluation: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        name, nats = "entity F1" if self.facts.scheme else "accuracy", evaluation.nats_per_element
        part = measured_part(rows, self.facts.sentences.valid)
        return (
            {name.replace(" ", "_").lower(): value, "nats_per_word": nats},
            f"{name} {value:.2%} on {part}held-out sentences ({nats:.4f} nats per word)",
        )

    def more_facts(self) -> dict[str, Any]:
        return {"tags": list(self.vocabulary.tags)}

    @property
    def basis(self) -> Basis:
        return Basis("tag", f"{counted(len(self.vocabulary.tags), 'tag')}", given="the words")

    def checked_rows(self) -> CheckedRows:
        valid = self.corpus().valid
        batch = valid.batch(np.argsort(-np.minimum(valid.lengths, _CHECKED_WORDS), kind="stable")[:_CHECKED_ROWS])
        assert isinstance(batch.context, dict)
        assert batch.lengths is not None
        x = batch.x[:, :_CHECKED_WORDS]
        context = {name: part[:, :_CHECKED_WORDS] for name, part in batch.context.items()}
        note = f"{len(x)} held-out sentences of up to {counted(x.shape[1], 'word')}"
        return CheckedRows(self.model(), x, context, batch.lengths.clamp(max=_CHECKED_WORDS), note)


_TEMPLATES = "templates.safetensors"  # below data/, fitted before training
_TEMPLATE_PASSES = 3.0  # more gained nothing on UD English EWT
_FEWEST_PASSES = 0.01
_TEMPLATE_SHARE = 0.1  # of a budget, at most
_WARM_UP, _TIMED_STEPS = 2, 8  # steps: the first take longer


def default_passes(run: "TagTask", batches: "TrainingBatches", passes: float) -> float:
    """Choose the passes that fit the templates: at most three, in at most a tenth of the budget; none for spans."""
    if run.facts.scheme is not None:
        return 0.0
    budget = run.config.duration.budget
    if budget is None:
        return min(_TEMPLATE_PASSES, passes)
    steps = min(_TIMED_STEPS, batches.steps_per_epoch)
    scores = new_templates(run)
    with progress_bars() as begin:
        begin(None, "timing templates")
        _fit(scores, batches, _WARM_UP)
        began = monotonic()
        _fit(scores, batches, steps)
        of_a_pass = (monotonic() - began) / steps * batches.steps_per_epoch
    return round(min(_TEMPLATE_PASSES, max(_FEWEST_PASSES, _TEMPLATE_SHARE * budget / of_a_pass)), 2)


def new_templates(run: "TagTask") -> "TemplateScores":
    """Return empty template scores; symbol 0 stands for unseen characters."""
    from chainrule.layers import TemplateScores

    return TemplateScores(["", *run.vocabulary.characters], len(run.vocabulary.tags))


def fitted_templates(run: "TagTask", passes: float) -> "TemplateScores":
    """Return the template scores of a run: read if they exist, else fitted."""
    from chainrule.training import load_weights, save_weights

    scores, path = new_templates(run), run.path / DATA / _TEMPLATES
    if path.is_file():
        load_weights(path, scores)
        return scores
    batches, _ = run.batches((0, 1))
    with progress_bars() as begin:
        begin(None, "fitting templates")
        _fit(scores, batches, max(1, round(passes * batches.steps_per_epoch)))
    save_weights(path, scores, {})
    return scores


def _fit(scores: "TemplateScores", batches: "TrainingBatches", steps: int) -> None:
    def tagged_words(step: int) -> "tuple[Tensor, Tensor | None, Tensor]":
        batch = batches.at(step)
        context: Any = batch.context
        return context["characters"], batch.lengths, batch.x

    scores.fit(tagged_words, steps)


_SHOWN = 14  # words of an example


def predicted_tags(
    model: "SequenceTagger", batches: "Iterable[Batch]", vocabulary: "TaggedVocabulary"
) -> Iterator[list[str]]:
    """Predict the tags of each sentence, in order; expects a model in evaluation mode."""
    from chainrule.state import map_state

    device = modes.device_of(model)
    for batch in batches:
        assert batch.lengths is not None
        context = map_state(lambda part: part.to(device), batch.context)
        with torch.no_grad():
            rows = model.decode(context, batch.lengths.to(device)).tolist()
        for row, length in zip(rows, batch.lengths.tolist(), strict=True):
            yield [vocabulary.tags[tag] for tag in row[:length]]


def tag_metric(corpus: "TaggedCorpus") -> "ValidationMetric":
    """Measure entity F1 if the tags mark spans, else word accuracy; show another sentence each time."""
    from chainrule.metrics import entity_scores, tag_accuracy
    from chainrule.training import MetricValue, ValidationMetric

    vocabulary = corpus.vocabulary
    gold = [
        [vocabulary.tags[tag] for tag in row[:length]]
        for batch in tag_reader.tagged_evaluation(corpus.valid)
        if batch.lengths is not None
        for row, length in zip(batch.x.tolist(), batch.lengths.tolist(), strict=True)
    ]
    unknown = [[not vocabulary.word(word) for word in words] for words in corpus.valid_words]
    marks_spans = vocabulary.scheme is not None
    interesting = {number for number, row in enumerate(gold) if len(row) > 1 and (not marks_spans or set(row) != {"O"})}

    def answer(model: "TrainableModel", rows: "Rows") -> Sequence[list[str]]:
        batches = tag_reader.tagged_evaluation(corpus.valid, rows=rows)
        return list(predicted_tags(cast("SequenceTagger", model), batches, vocabulary))

    def compare(rows: "Rows", predicted: Sequence[list[str]], step: int) -> "MetricValue":
        true, example = [gold[row] for row in rows], ""
        candidates = [index for index, row in enumerate(rows) if int(row) in interesting]
        if candidates:
            index = candidates[int(np.random.default_rng(step).integers(len(candidates)))]
            example = side_by_side(corpus.valid_words[rows[index]], true[index], predicted[index])
        if marks_spans:
            return MetricValue(
                "f1", entity_scores(*(list(map(vocabulary.standard, rows)) for rows in (true, predicted))).f1, example
            )
        return MetricValue("accuracy", tag_accuracy(true, predicted, [unknown[row] for row in rows]).accuracy, example)

    return ValidationMetric(len(gold), answer, compare)


def side_by_side(words: Sequence[str], gold: Sequence[str], predicted: Sequence[str]) -> str:
    """Format a tagged sentence; wrong tags show the right one."""
    cells = [
        f"{word}/{tag}" if tag == true else f"{word}/{tag}(is {true})"
        for word, true, tag in zip(words, gold, predicted, strict=True)
    ]
    return " ".join(cells[:_SHOWN]) + (" ..." if len(cells) > _SHOWN else "")

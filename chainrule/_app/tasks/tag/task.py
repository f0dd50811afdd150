"""Tags: sentences with a tag for every word, and a bidirectional tagger that learns them.

data/vocabulary.json                  words, characters, tags and the scheme of the tags
data/train.*, data/valid.*            the sentences as numbers
data/valid.json                       the words of the held-out sentences, to show
data/templates.safetensors            scores of templates, fitted before training
data/corpus.json                      counts and fingerprints
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule._app.tasks.abilities import CheckedRows, Checks, Embeds, Evaluates, Inspects, Predicts
from chainrule._app.tasks.config import Facts, Fingerprint, OptimisationOptions, Parts, RunConfig, SplitOptions, within
from chainrule._app.tasks.display import counted, measured_part, quoted
from chainrule._app.tasks.ladder import record_settled, settle_decay, tell_passes, time_passes
from chainrule._app.tasks.ledger import Basis
from chainrule._app.tasks.model import Model
from chainrule._app.tasks.run_directory import DATA, WEIGHTS
from chainrule._app.tasks.tag.evaluation import TagEvaluation, evaluate_tags
from chainrule._app.tasks.tag.inspection import TagInspection, inspect_tagger
from chainrule._app.tasks.tag.tagging import TagEmbedding, Tagging, embed_sentences, tag_file
from chainrule._app.tasks.task import Shard, Source, Task

if TYPE_CHECKING:
    from chainrule.data._tagged import TaggedCorpus, TaggedVocabulary
    from chainrule.layers._template_scores import TemplateScores
    from chainrule.models import SequenceTagger
    from chainrule.training import Evaluation as Measurement
    from chainrule.training import TrainingBatches, ValidationBatches, ValidationMetric

_CHECKED_ROWS, _CHECKED_WORDS = 4, 12
_MODEL = "SequenceTagger"
_FEW_PASSES = 7.0  # over the sentences: on UD English EWT affixes alone are better at 5, and worse at 9
_WORD_DROPOUT_OF_FEW = 0.25


@dataclass(frozen=True)
class TagData(SplitOptions):
    """How a file of tagged sentences is read."""

    column: str | None = None
    """Column of the tags: upos, xpos or another name of CoNLL-U, or a number from 1; upos or the last if not given."""
    word_column: int = within(1, 1, 1 << 20)
    """Column of the words, a number from 1; CoNLL-U has them in form."""
    max_length: int = within(512, 1, 1 << 20)
    """Words of the longest sentence that is taken."""
    repair: bool = False
    """Read impossible sequences of BIO tags, such as I-X after O, as the nearest possible ones."""


@dataclass(frozen=True)
class TagTraining(OptimisationOptions):
    """How a tagger is trained."""

    learning_rate: float = within(4e-3, 0.0, 1e3)
    clip_norm: float | None = within(5.0, 0.0, 1e9)
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Precision of matrix products; those of a tagger are too small to gain by bfloat16 on a processor."""
    word_dropout: float = within(4.0, 0.0, 1e6)
    """A word seen c times is read as unknown with probability W / (W + c), W being this number; lower in few passes."""
    template_passes: float | None = within(None, 0.0, 1e3)
    """Passes that fit the templates before training, 0 for none; 3 where not given, fewer if short, none for spans."""


@dataclass(frozen=True)
class TagFacts(Facts):
    """Results of preparing tagged sentences."""

    validation: Fingerprint | None
    conllu: bool
    column: str
    width: int  # columns of the file
    scheme: Literal["bio", "bioes"] | None  # of spans, where the tags mark them
    repaired: int  # sentences whose tags were impossible in it
    sentences: Parts
    words: Parts
    different_words: int


class TagTask(Task["SequenceTagger"], Predicts, Evaluates, Checks, Inspects, Embeds):
    """A run on tagged sentences."""

    name = "tag"
    help = "Train a tagger on sentences with a tag for every word."
    SOURCES: ClassVar[dict[str, Source]] = {
        "source": Source(
            "Sentences in columns, a word a line, blank lines between them: CoNLL-U, or words and tags; .gz too.",
            needed="a file of tagged sentences",
        ),
        "validation": Source(
            "Sentences to hold out, in place of some of DATA: they choose the weights that are kept.", "--validation"
        ),
    }
    Data = TagData
    Facts = TagFacts
    Training = TagTraining
    MODELS: ClassVar[dict[str, Model]] = {
        "tagger": Model(_MODEL, hidden=("num_characters", "num_heads")),
        "transformer": Model(_MODEL, fixed={"cell": "transformer"}, hidden=("num_characters",), num_layers=2),
    }
    PLAIN: ClassVar[dict[str, Any]] = {"template_passes": 0.0}
    PREPARED = f"{DATA}/corpus.json"
    Prediction, predict = Tagging, tag_file
    Evaluation, evaluate = TagEvaluation, evaluate_tags
    Inspection, inspect = TagInspection, inspect_tagger
    Embedding, embed = TagEmbedding, embed_sentences
    writes_page = False

    @property
    def facts(self) -> TagFacts:
        return cast(TagFacts, self.config.facts)

    @classmethod
    def check_asked(cls, asked: RunConfig, given: frozenset[str]) -> None:
        super().check_asked(asked, given)
        encoder = asked.options.character_encoder
        if "--affix-dropout" in given and encoder != "cnn+affixes":
            raise ValueError(
                f"--affix-dropout: belongs to the character encoder cnn+affixes, got {encoder}: leave one of them out"
            )

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        if config.facts is not None and config.training.template_passes is None:  # prepared: nothing is left open
            raise ValueError("template_passes: expected a value, got none")

    @cached_property
    def vocabulary(self) -> "TaggedVocabulary":
        """Words, characters and tags, read once."""
        from chainrule.data._tagged import TaggedVocabulary

        return TaggedVocabulary.load(self.path / DATA / "vocabulary.json")

    def corpus(self) -> "TaggedCorpus":
        """The prepared sentences."""
        from chainrule.data._tagged import open_tagged

        return open_tagged(self.path / DATA)

    def options_in_weights(self) -> dict[str, Any]:
        return {"template_passes": self.training.template_passes}

    def prepare(self, old: "TagTask | None" = None) -> dict[str, Any]:
        from chainrule.data._tagged import prepare_tagged

        sources = self.config.sources
        assert sources["source"] is not None
        manifest = prepare_tagged(
            sources["source"],
            self.path / DATA,
            **asdict(self.data),
            validation=sources["validation"],
            seed=self.training.seed,
            vocabulary=None if old is None else old.vocabulary,
        ).manifest
        if self.training.template_passes and old is None:  # settled: by one process, before the others read them
            from chainrule._app.tasks.tag.templates import fitted_templates

            fitted_templates(self, self.training.template_passes)
        return manifest

    def plan(self, given: frozenset[str]) -> RunConfig:
        """Settle weight decay, the passes of templates, and, from the number of passes, how words are read.

        Weights forget over two passes, so that rare words are not learned by heart. Where a budget tells the passes,
        they are those of the usual model, timed here.
        """
        from chainrule._app.tasks.tag.templates import usual_passes

        batches, _ = self.batches((0, 1))
        config = settle_decay(self.config, 2 * batches.steps_per_epoch)
        is_open = {
            "character_encoder": given.isdisjoint(("--character-encoder", "--affix-dropout")),
            "word_dropout": "--word-dropout" not in given,
            "template_passes": config.training.template_passes is None,
        }
        if not any(is_open.values()):
            return config
        config, passes = time_passes(type(self)(self.path, config), batches)
        config = record_settled(config, [name for name, left in is_open.items() if left])
        training, options = config.training, config.options
        if is_open["template_passes"]:
            training = replace(training, template_passes=usual_passes(self, batches, passes))
        if passes < _FEW_PASSES and is_open["character_encoder"]:
            options = replace(options, character_encoder="affixes")
        if passes < _FEW_PASSES and is_open["word_dropout"]:
            training = replace(training, word_dropout=_WORD_DROPOUT_OF_FEW)
        return replace(config, options=options, training=training)

    def choice(self) -> str:
        options, training = self.config.options, self.config.training
        said = tell_passes(self.config, "words", "sentences")
        return (
            f"{said}: character encoder {options.character_encoder}, word dropout {training.word_dropout:g}, "
            f"template passes {training.template_passes:g}"
        )

    def added_parts(self) -> Sequence[str]:
        return ["log-linear templates"] if self.training.template_passes else []

    def build(self) -> "SequenceTagger":
        from chainrule._app.tasks.tag.templates import fitted_templates

        if not self.training.template_passes or self.config.init is not None or (self.path / WEIGHTS).is_file():
            return self._network()
        return self._tagger(fitted_templates(self, self.training.template_passes))

    def _network(self) -> "SequenceTagger":
        from chainrule._app.tasks.tag.templates import new_templates

        return self._tagger(new_templates(self) if self.training.template_passes else None)

    def _tagger(self, templates: "TemplateScores | None") -> "SequenceTagger":
        from chainrule.heads import bio_constraints, bioes_constraints

        options, vocabulary = self.config.options, self.vocabulary
        constraints = None
        if options.head == "crf" and vocabulary.scheme is not None:
            constraints = {"bio": bio_constraints, "bioes": bioes_constraints}[vocabulary.scheme](
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

    def batches(self, shard: Shard) -> "tuple[TrainingBatches, ValidationBatches]":
        from chainrule.data._tagged import tagged_batches, tagged_evaluation

        corpus, training = self.corpus(), self.training
        batches = tagged_batches(
            corpus.train, corpus.vocabulary.counts, training.batch_size, training.word_dropout, training.seed, shard
        )
        return batches, lambda: tagged_evaluation(corpus.valid)

    def introduce(self) -> Iterable[str]:
        facts, tags = self.facts, self.vocabulary.tags
        form = "CoNLL-U" if facts.conllu else "columns"
        held_out = "held out" if facts.validation is None else f"held out ({facts.validation.name})"
        yield (
            f"{facts.source.name}, {form} with tags in column {facts.column}: "
            f"{counted(facts.sentences.train, 'sentence')} ({counted(facts.words.train, 'word')}) to train on, "
            f"{counted(facts.sentences.valid, 'sentence')} ({counted(facts.words.valid, 'word')}) {held_out}"
        )
        shown = " ".join(tags[:20]) + (" ..." if len(tags) > 20 else "")
        yield f"{counted(len(tags), 'tag')}: {shown}"
        if facts.scheme is not None:
            mended = f"; impossible tags repaired in {facts.repaired:,}" if facts.repaired else ""
            yield f"the tags mark spans in {facts.scheme.upper()}: entity F1 decides which weights are kept{mended}"

    def validation_metric(self) -> "ValidationMetric":
        from chainrule._app.tasks.tag.validation_metric import tag_metric

        return tag_metric(self.corpus())

    @property
    def metric_name(self) -> str:
        return "f1" if self.facts.scheme else "accuracy"

    def best(self, found: "Measurement", value: float | None, rows: int) -> tuple[dict[str, Any], str]:
        name, nats = "entity F1" if self.facts.scheme else "accuracy", found.nats_per_element
        part = measured_part(rows, self.facts.sentences.valid)
        return (
            {name.replace(" ", "_").lower(): value, "nats_per_word": nats},
            f"{name} {value:.2%} on {part}held-out sentences ({nats:.4f} nats per word)",
        )

    def next_steps(self) -> Sequence[str]:
        path = quoted(self.path)
        return [f"echo 'Time flies .' | chainrule tag {path} - --text", f"chainrule evaluate {path} TEST"]

    def describe(self, about: dict[str, Any]) -> dict[str, str]:
        facts, tags = self.facts, list(self.vocabulary.tags)
        about["tags"] = tags
        held_out = facts.validation.name if facts.validation else f"{facts.sentences.valid:,} of its sentences"
        scheme = f", spans in {facts.scheme.upper()}" if facts.scheme else ""
        return {
            "data": f"{facts.source.name}: {counted(facts.sentences.train, 'sentence')} to train on, "
            f"{counted(facts.words.train, 'word')}, {facts.different_words:,} different ones in lower case",
            "held out": f"{held_out}, {counted(facts.words.valid, 'word')}",
            "tags": f"{len(tags)} of column {facts.column}{scheme}: {' '.join(tags)}",
        }

    @property
    def basis(self) -> Basis:
        return Basis("tag", f"{counted(len(self.vocabulary.tags), 'tag')}", given="the words")

    def checked_rows(self) -> CheckedRows:
        import numpy as np

        valid = self.corpus().valid
        batch = valid.batch(np.argsort(-np.minimum(valid.lengths, _CHECKED_WORDS), kind="stable")[:_CHECKED_ROWS])
        assert isinstance(batch.context, dict)
        assert batch.lengths is not None
        x = batch.x[:, :_CHECKED_WORDS]
        context = {name: part[:, :_CHECKED_WORDS] for name, part in batch.context.items()}
        told = f"{len(x)} held-out sentences of up to {counted(x.shape[1], 'word')}"
        return CheckedRows(self.model(), x, context, batch.lengths.clamp(max=_CHECKED_WORDS), told)

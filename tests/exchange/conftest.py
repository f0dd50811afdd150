import pytest
from small_language_models import shaken

from chainrule.data import CharVocabulary
from chainrule.training import save_weights
from chainrule_app.cli.main import main
from chainrule_app.tasks.config import Duration, Fingerprint, RunConfig
from chainrule_app.tasks.run_directory import VOCABULARY, WEIGHTS
from chainrule_app.tasks.text.options import MODELS, TextData, TextTraining
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.tasks.text.task import TextCounts, TextFacts

CHARACTERS = "\n abcdefgh"


@pytest.fixture
def command(capsys):
    """Run a command line; returns status, standard output and standard error."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def text_run(tmp_path):
    """Make the run of a small model of characters, with shaken weights."""

    def make(name="transformer", vocabulary=None, **options) -> TextRun:
        vocabulary = CharVocabulary(CHARACTERS) if vocabulary is None else vocabulary
        counts = TextCounts(elements=90, lines=0, unknown=0, characters=90, bytes=90)
        config = RunConfig(
            sources={"source": str(tmp_path / "private" / "poems.txt"), "validation": None, "tokenizer": None},
            data=TextData(level=vocabulary.level, reading="stream", validation_fraction=0.1),
            model=name,
            options=MODELS[name].options(**options),
            duration=Duration(steps=1),
            training=TextTraining(
                batch_size=1, optimiser="adamw", learning_rate=0.1, weight_decay=0.0, kneser_ney_order=0
            ),
            facts=TextFacts(source=Fingerprint("poems.txt", 90, "0" * 64), validation=None, train=counts, valid=counts),
        )
        task = TextRun.create(tmp_path / "run", config, overwrite=True)
        vocabulary.save(task.path / VOCABULARY)
        save_weights(task.path / WEIGHTS, shaken(task.new_model(0)), {})
        return task

    return make

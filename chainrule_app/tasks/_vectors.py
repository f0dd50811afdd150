"""Pretrained word vectors as the initial embedding of taggers and classifiers."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError, option
from chainrule_app.heavy import torch
from chainrule_app.readers.store import Store
from chainrule_app.tasks.config import RunConfig
from chainrule_app.tasks.run_directory import DATA, WEIGHTS
from chainrule_app.tasks.task import Source

if TYPE_CHECKING:
    from torch import nn

    from chainrule_app.tasks.task import Task

VECTORS = Source(
    "Pretrained word vectors for the initial embedding: a word and its numbers per line, as in GloVe and word2vec.",
    "--vectors",
)


def resolve_size(request: RunConfig) -> RunConfig:
    """Set the embedding size to the dimension of the vectors."""
    from chainrule_app.readers.word_vectors import vector_size

    path = request.sources.get("vectors")
    if path is None:
        return request
    if request.init is not None:
        raise OptionError("vectors", f"the run of {option('init')} has an embedding", "leave one of them out")
    size, asked = vector_size(path), request.options.embedding_size
    default = next(item.default for item in fields(request.options) if item.name == "embedding_size")
    if asked not in (default, size):
        raise OptionError("embedding_size", f"expected {size}, as in {path}, got {asked}", "leave it out")
    return replace(request, options=replace(request.options, embedding_size=size))


def fill_embedding(run: "Task[Any]", embedding: "nn.Embedding") -> None:
    """Copy the vectors of a new run into its embedding."""
    from chainrule_app.readers.word_vectors import WordVectors

    if run.facts.vectors is None or (run.path / WEIGHTS).is_file():
        return
    store = Store(run.path / DATA, run.PREPARED.rpartition("/")[2], "vectors")
    found = WordVectors.load(store, embedding.num_embeddings, embedding.embedding_dim)
    embedding.weight.data[torch.from_numpy(found.rows)] = torch.from_numpy(found.vectors)


def describe_vectors(run: "Task[Any]", words: int) -> Iterator[str]:
    """Yield the line about the vectors of a run, if it has any."""
    if run.facts.vectors is not None:
        missing, size = run.facts.words_without_vector, run.config.options.embedding_size
        yield (
            f"{run.facts.vectors.name}: vectors of {size} numbers for {words - missing:,} of {words:,} words; "
            f"the other {missing:,} start at random"
        )

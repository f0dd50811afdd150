"""The `tokenizer.json` of a vocabulary: the same symbols from the library `tokenizers`."""

from typing import Any

from chainrule.data import BPEVocabulary, CharVocabulary, Vocabulary, WordVocabulary
from chainrule.data._vocabulary import EOS, UNKNOWN
from chainrule.interchange._packages import package

START = "<|start|>"
_BLANKS = r"[ \t\r\v\f]+"


def tokenizer_of(vocabulary: Vocabulary) -> Any:
    """Return a `tokenizers.Tokenizer` that encodes a text as the vocabulary does, behind the start symbol V."""
    library = package("tokenizers")
    models, splits, decoders = library.models, library.pre_tokenizers, library.decoders
    if isinstance(vocabulary, WordVocabulary) and vocabulary.split_punctuation:
        raise ValueError("a tokenizer.json cannot join split punctuation again: train with --level bpe to export it")
    byte_level = splits.ByteLevel(add_prefix_space=False, use_regex=isinstance(vocabulary, BPEVocabulary))
    if isinstance(vocabulary, CharVocabulary | WordVocabulary):
        is_char = isinstance(vocabulary, CharVocabulary)
        names = {
            vocabulary.decode([number]): number for number in range(len(vocabulary)) if number != vocabulary.unknown
        }
        tokenizer = library.Tokenizer(models.WordLevel(names | {UNKNOWN: vocabulary.unknown}, unk_token=UNKNOWN))
        if is_char:
            tokenizer.pre_tokenizer = splits.Split(library.Regex(r"[\s\S]"), "isolated")
            tokenizer.decoder = decoders.Fuse()
        else:
            lines, blanks = splits.Split("\n", "isolated"), splits.Split(library.Regex(_BLANKS), "removed")
            tokenizer.pre_tokenizer = splits.Sequence([lines, blanks])
    elif isinstance(vocabulary, BPEVocabulary):
        pieces = {piece: number for number, piece in enumerate(vocabulary.pieces)}
        tokenizer = library.Tokenizer(models.BPE(vocab=pieces, merges=vocabulary.merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
        if vocabulary.eos is not None:
            tokenizer.add_tokens([library.AddedToken("\n", normalized=False)])
    else:
        pieces = {piece: number for number, piece in enumerate(BPEVocabulary([]).pieces)}
        tokenizer = library.Tokenizer(models.BPE(vocab=pieces, merges=[]))
        tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    tokenizer.add_special_tokens([library.AddedToken(START, special=True, normalized=False)])
    assert tokenizer.token_to_id(START) == len(vocabulary), (EOS, tokenizer.get_vocab_size())
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, len(vocabulary))]
    )
    return tokenizer

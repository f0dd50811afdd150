"""The tagger: an exact distribution over tag sequences, by enumeration, and blind to padding."""

import itertools

import pytest
import torch

from chainrule.heads import TagConstraints
from chainrule.heads._linear_chain_crf import TagSequences
from chainrule.layers import TemplateScores
from chainrule.models import SequenceTagger

K, V, C = 3, 6, 5
LENGTHS = torch.tensor([4, 0, 2, 1])
TOLERANCE = 1e-10  # float64; sums of some hundred terms of size one


def make(head="crf", characters="lstm", seed=0, **options):
    torch.manual_seed(seed)
    number = None if characters is None else C
    options = {"hidden_size": 4, "embedding_size": 3, "character_size": 4} | options
    tagger = SequenceTagger(K, V, number, head=head, character_encoder=characters or "lstm", **options).double().eval()
    for parameter in tagger.head.parameters():
        parameter.data = torch.randn_like(parameter)
    return tagger


def context(rows=4, time=4, seed=0, characters=True):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(V, (rows, time), generator=generator)
    spelled = torch.randint(1, C + 1, (rows, time, 3), generator=generator)
    spelled[..., 2].masked_fill_(words % 2 == 0, 0)  # words of two characters and of three
    return {"words": words, "characters": spelled} if characters else words


def all_tags(length):
    return torch.tensor(list(itertools.product(range(K), repeat=length)), dtype=torch.long).view(K**length, length)


def row_of(given, row, time):
    return {name: part[row : row + 1, :time] for name, part in given.items()}


CHARACTERS = ["lstm", "cnn", "cnn+affixes", None]
PAIRS = [*zip(["crf", "softmax"] * 2, CHARACTERS, strict=True)]  # each head, and each way to read characters
OTHERS = [*zip(["softmax", "crf"] * 2, CHARACTERS, strict=True)]


@pytest.mark.parametrize(
    ("head", "characters"), [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS)]
)
def test_keeps_the_contract(keeps_contract, head, characters):
    given, tags = context(characters=characters is not None), torch.randint(K, (4, 4))
    report = keeps_contract(make(head, characters), tags, given, LENGTHS)
    assert all(result.applies for result in report.results)


def test_a_longer_word_elsewhere_in_the_batch_changes_nothing():
    tagger, given = make(characters="cnn+affixes"), context()
    wider = given | {"characters": torch.nn.functional.pad(given["characters"], (0, 2))}
    torch.testing.assert_close(tagger(wider).emissions, tagger(given).emissions, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_decoding_marginals_and_n_best_are_those_of_enumeration(head):
    tagger, given = make(head), context()
    best, marginals = tagger.decode(given, LENGTHS), tagger.marginals(given, LENGTHS)
    found, log_probs = tagger.n_best(given, LENGTHS, n=5)
    for row, length in enumerate(LENGTHS.tolist()):
        tags = all_tags(length)
        one = {name: part.expand(len(tags), *part.shape[1:]) for name, part in row_of(given, row, length).items()}
        scores, order = tagger.log_prob(tags, one).sort(descending=True)
        assert best[row, :length].tolist() == tags[order[0]].tolist()
        assert (best[row, length:] == -1).all()
        kept = min(5, len(tags))
        assert found[row, :kept, :length].tolist() == tags[order[:kept]].tolist()
        torch.testing.assert_close(log_probs[row, :kept], scores[:kept], rtol=0, atol=TOLERANCE)
        assert (log_probs[row, kept:] == -torch.inf).all()
        one_hot = torch.nn.functional.one_hot(tags, K).double()
        expected = (one_hot * tagger.log_prob(tags, one).exp()[:, None, None]).sum(0)
        torch.testing.assert_close(marginals[row, :length], expected, rtol=0, atol=TOLERANCE)
        assert (marginals[row, length:] == 0).all()


def test_every_tag_sees_the_whole_sentence_and_its_own_characters():
    tagger, given = make("softmax"), context(rows=1)
    emissions = tagger(given).emissions
    for t in range(4):
        changed = {name: part.clone() for name, part in given.items()}
        changed["characters"][0, t, 0] = changed["characters"][0, t, 0] % C + 1
        assert ((tagger(changed).emissions - emissions).abs().amax(2) > 0).all()


def test_forbidden_sequences_have_no_probability_and_are_never_decoded():
    names = ["O", "B-X", "I-X"]
    tagger = make("crf", constraints=TagConstraints.bio(names))
    given = context()
    assert tagger.log_prob(torch.tensor([[0, 2, 0, 0]]), row_of(given, 0, 4)) == -torch.inf
    for seed in range(5):
        rows = tagger.decode(context(rows=20, seed=seed)).tolist()
        for row in rows:
            assert row[0] != 2
            assert (0, 2) not in itertools.pairwise(row)


def test_forward_is_a_distribution_over_rows_of_tags():
    tags = make()(context(), LENGTHS)
    assert isinstance(tags, TagSequences)
    assert (tags.batch_shape, tags.event_shape) == ((4,), (4,))
    assert torch.equal(
        tags.sample(generator=torch.Generator().manual_seed(3)) == -1, torch.arange(4) >= LENGTHS[:, None]
    )


def test_dropout_acts_in_training_only_and_forward_changes_no_state():
    tagger, given = make(dropout=0.5), context()
    before = {name: value.clone() for name, value in tagger.state_dict().items()}
    assert torch.equal(tagger(given).emissions, tagger(given).emissions)
    tagger.train()
    assert not torch.equal(tagger(given).emissions, tagger(given).emissions)
    assert all(torch.equal(value, before[name]) for name, value in tagger.state_dict().items())


def test_affixes_are_left_out_as_often_as_asked():
    assert make(characters="cnn+affixes", affix_dropout=0.3).characters.affixes.dropout == 0.3
    assert make(characters="affixes", affix_dropout=0.3).characters.dropout == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "svm"}, "head: expected one of crf, softmax, got 'svm'"),
        ({"head": "softmax", "constraints": TagConstraints(*[torch.ones(1)] * 3)}, "constraints: a softmax"),
        ({"embedding_size": 0}, "embedding_size: expected an integer >= 1, got 0"),
        ({"character_size": 3}, "character_size: expected an even number"),
        ({"characters": "vit"}, "character_encoder: expected one of cnn.affixes, .*, got 'vit'"),
        ({"dropout": -0.1}, "dropout: expected a number in"),
        ({"cell": "mlp"}, "cell: expected one of"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(4, 4, dtype=torch.long), 'expected {"words"'),
        ({"words": torch.zeros(4, 4, dtype=torch.long)}, 'expected {"words"'),
        ({"words": torch.zeros(4, 4), "characters": None}, "expected words as integers"),
        (
            {"words": torch.zeros(4, 4, dtype=torch.long), "characters": torch.zeros(4, 3, 2, dtype=torch.long)},
            "characters",
        ),
        (None, "expected words"),
    ],
)
def test_a_context_that_is_none_is_refused(given, message):
    with pytest.raises(ValueError, match=f"context: .*{message}"):
        make()(given)


def with_templates(head):
    templates = TemplateScores("abcde", K)
    torch.nn.init.normal_(templates.table[:-1], generator=torch.Generator().manual_seed(3))
    return make(head, templates=templates)


@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_templates_are_averaged_with_the_network_and_not_trained(head):
    tagger, given, tags = with_templates(head), context(), torch.randint(K, (4, 4))
    network, templates = tagger._emissions(given, LENGTHS), tagger.templates
    assert templates is not None
    scores = templates(given["characters"], LENGTHS)
    both = TagSequences(tagger.head, (network + scores) / 2, LENGTHS)
    torch.testing.assert_close(tagger.log_prob(tags, given, LENGTHS), both.log_prob(tags))
    torch.testing.assert_close(tagger.marginals(given, LENGTHS), both.marginals)
    assert (tagger.decode(given, LENGTHS) == both.mode).all()
    tagger.templates = None
    alone = tagger.log_prob(tags, given, LENGTHS)
    tagger.templates = templates
    torch.testing.assert_close(tagger.training_objective(tags, given, LENGTHS), alone)
    assert not torch.allclose(tagger.log_prob(tags, given, LENGTHS), alone)
    assert [name for name, weight in tagger.named_parameters() if not weight.requires_grad] == ["templates.table"]


def test_templates_need_characters_and_the_right_number_of_tags():
    with pytest.raises(ValueError, match="templates: expected scores of 3 tags, got 2"):
        make(templates=TemplateScores("abcde", 2))
    with pytest.raises(ValueError, match="got words alone"):
        make(characters=None, templates=TemplateScores("abcde", K))(context(characters=False))

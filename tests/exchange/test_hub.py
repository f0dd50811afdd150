"""Folders for the Hugging Face Hub: models that transformers opens give the numbers of ours."""

import json

import numpy as np
import pytest
import small_data
import torch
from small_language_models import SMALL, before, greedy, shaken

import chainrule
from chainrule.data import BPEVocabulary, ByteVocabulary, CharVocabulary, WordVocabulary
from chainrule.models import RecurrentLM, TransformerLM
from chainrule_app.exchange import export_run
from chainrule_app.exchange.causal_lm import causal_lm, misfit
from chainrule_app.exchange.exporting import tokenizer_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
LAYOUTS = [
    ({"position": "learned"}, "gpt2"),
    ({"position": "sinusoidal", "norm": "rms", "activation": "relu"}, "gpt2"),
    ({"position": None, "bias": True, "activation": "gelu-tanh", "tie_weights": True}, "gpt2"),
    ({"position": "rotary"}, "gpt_neox"),
    ({"position": "rotary", "num_kv_heads": 1, "bias": True, "norm": "rms"}, "gpt_neox"),
    ({"position": "rotary", "activation": "swiglu", "norm": "rms", "num_kv_heads": 1}, "stablelm"),
]


def opened(model: TransformerLM):
    from transformers import AutoConfig, AutoModelForCausalLM

    made = causal_lm(model)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**made.config)).to(model.bias_ho.dtype)
    theirs.load_state_dict(made.tensors)
    return theirs.eval(), made.config["model_type"]


@torch.no_grad()
@pytest.mark.parametrize(("options", "kind"), LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_are_those_of_the_model(options, kind, dtype):
    model = shaken(TransformerLM(10, **(SMALL | options)).to(dtype))
    theirs, found = opened(model)
    assert found == kind
    x = torch.randint(10, (3, 40), generator=torch.Generator().manual_seed(0))
    scores = theirs(before(x, 10)).logits.log_softmax(-1)
    # transformers computes rotations in float32, whatever the model's type.
    tolerance = 1e-10 if dtype == torch.float64 and kind == "gpt2" else 1e-5
    torch.testing.assert_close(scores[..., :10], model(x).logits, atol=tolerance, rtol=tolerance)
    assert scores[..., 10].exp().max() == 0  # the start symbol is never drawn
    with torch.no_grad():
        model.bias_ho[3] += 0.01  # and the test sees a bias
    assert (scores[..., :10] - model(x).logits).abs().max() > 1e-3


@torch.no_grad()
def test_exported_run_opens_in_transformers_and_draws_the_same_symbols(text_run, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = text_run(**SMALL)
    export_run(run, "hub", tmp_path / "hub")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hub")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hub")
    ids = tokenizer("abba cad", return_tensors="pt").input_ids
    vocabulary = run.vocabulary
    assert ids[0].tolist() == [len(vocabulary), *vocabulary.encode("abba cad").tolist()]
    drawn = theirs.generate(torch.tensor([[len(vocabulary)]]), max_new_tokens=200, do_sample=False)
    assert drawn[0, 1:].tolist() == greedy(run.model(), 200)
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == "abba cad"


@pytest.mark.parametrize(
    "vocabulary",
    [
        CharVocabulary("\n abcé|"),
        CharVocabulary(" abc", eos=True),
        ByteVocabulary(),
        WordVocabulary(["the", "cat", "é|"]),
        BPEVocabulary([("t", "h"), ("th", "e"), ("Ġ", "c")]),
        BPEVocabulary([("t", "h"), ("th", "e"), ("Ġ", "c")], eos=True),
    ],
)
def test_tokenizer_gives_the_symbols_of_the_vocabulary(vocabulary):
    text = "the cat\nabc  the?\n\ncab é| then\n"
    found = tokenizer_of(vocabulary).encode(text).ids
    assert found == [len(vocabulary), *vocabulary.encode(text).tolist()]


@pytest.mark.parametrize(
    "options",
    [
        {"ngram_order": 2},
        {"norm_first": False},
        {"position": "alibi"},
        {"attention": "gated-linear"},
        {"activation": "swiglu", "position": "learned"},
    ],
)
def test_models_without_a_layout_are_named(options):
    assert misfit(TransformerLM(10, **(SMALL | options)))
    assert misfit(RecurrentLM(10, hidden_size=4))


def test_other_models_are_exported_as_runs(text_run, tmp_path, command):
    run = text_run(**(SMALL | {"ngram_order": 2}))
    status, out, _ = command("export", run.path, "--to", "hub", "--out", tmp_path / "hub")
    assert status == 0
    assert "n-gram" in out
    again = chainrule.load(tmp_path / "hub")
    x = torch.randint(10, (2, 9))
    assert torch.equal(again.model(x).logits, run.model()(x).logits)
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "chainrule.load" in card
    assert "poems.txt" in card
    for file in ("README.md", "config.json"):
        assert "private" not in (tmp_path / "hub" / file).read_text()  # no folders of the machine
    assert not (tmp_path / "hub" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("task", "data", "ask"),
    [
        ("classify", [(f"a good film {n}", "good") for n in range(20)] + [("a bad one", "bad")] * 9, "a good film"),
        ("tag", [[(f"private{n}", "A"), ("b", "B")] for n in range(20)], "private1 b"),
    ],
)
def test_an_exported_run_holds_no_data_and_no_trace_of_the_machine(task, data, ask, tmp_path):
    run = chainrule.fit(data, task=task, steps=1, plain=True, out=tmp_path / "run")
    held_out = run.path / "data" / "valid.json"
    assert held_out.is_file()
    (run.path / "wandb").mkdir()
    for name in ("wandb/run.log", "tracking.json", "training.html", "report.html"):
        (run.path / name).write_text("secret")
    run.export("hub", tmp_path / "hub")
    files = {file.relative_to(tmp_path / "hub").as_posix(): file for file in (tmp_path / "hub").rglob("*")}
    assert not {"data/valid.json", "wandb", "tracking.json", "training.html", "report.html"} & files.keys()
    assert chainrule.load(tmp_path / "hub").predict([ask])["nats" if task == "tag" else "label"]
    assert chainrule.load(tmp_path / "hub").predict([ask]).to_dict() == run.predict([ask]).to_dict()


def test_card_has_figures_and_escapes_names(text_run, tmp_path):
    run = text_run(**SMALL)
    record = {"event": "validation", "step": 1, "nats_per_element": 1.0, "elements": 90, "best": True}
    record |= {"bits_per_element": 1.4427, "perplexity": 2.718}
    (run.path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    chainrule.load(run.path).export("hub", tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "| bits per symbol | 1.4427 (exact) |" in card
    assert card.startswith("---\nlibrary_name: transformers\n")
    from chainrule_app.exchange.exporting import _cell

    assert _cell("a|b`<script>\n") == "a\\|b\\`\\<script\\>\\\\n"


def test_taken_folders_and_unknown_formats_are_refused(text_run, tmp_path, command):
    run = text_run(**SMALL)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    status, _, error = command("export", run.path, "--to", "hub", "--out", tmp_path / "full")
    assert status == 2
    assert "new or an empty folder" in error
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(ValueError, match="expected hub, onnx, torch-export or web"):
        chainrule.load(run.path).export("gguf", tmp_path / "new")
    assert not (tmp_path / "new").exists()


IMAGE = np.random.default_rng(1).integers(0, 256, (8, 8), dtype=np.uint8)
ASKED = {
    "table": lambda run: run.score(
        [{"first": "a", "second": "x", "third": 1}, {"first": "b", "second": "z", "third": 0}]
    ),
    "translate": lambda run: run.translate(["a b", "c"], beam=2),
    "caption": lambda run: run.caption([IMAGE]),
}


@pytest.mark.parametrize("task", ASKED)
def test_an_exported_run_answers_and_begins_another_run(task, tmp_path):
    data, *flags = small_data.WRITERS[task](tmp_path)
    options = {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)}
    run = chainrule.fit(data, out=tmp_path / "run", steps=1, **options)
    run.export("hub", tmp_path / "hub")
    exported = chainrule.load(tmp_path / "hub")
    assert not exported.task.is_prepared()
    expected, found = ASKED[task](run), ASKED[task](exported)
    assert found["nats"] == expected["nats"]
    assert len(found["cell" if task == "table" else found.main]) == len(expected)
    sources = {name: value for name, value in options.items() if name in ("task", "captions")}
    following = chainrule.fit(data, init=exported, steps=1, **sources)
    following.export("hub", tmp_path / "again")
    assert following.config["init"]["run"] == str(tmp_path / "hub")
    assert str(tmp_path) not in (tmp_path / "again" / "config.json").read_text()


def test_the_playground_shows_an_exported_run_with_codes(tmp_path):
    from chainrule_app.serve.playground import about

    data, *_ = small_data.write_images(tmp_path)
    run = chainrule.fit(data, model="vae", latent_size=2, hidden_size=4, steps=1, out=tmp_path / "run")
    run.export("hub", tmp_path / "hub")
    shown = about("hub", chainrule.load(tmp_path / "hub"), False)
    assert (shown["view"], shown["facts"]["dimensions"], shown["facts"]["examples"]) == ("latent", [0, 1], 0)

"""Models of other programs as runs: their conditionals are those of the source."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_language_models import before, shaken
from torch import Tensor, nn

import chainrule
from chainrule_app.exchange import import_model

LETTERS = "\nba c"  # in an order of its own


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, bias: bool):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size, bias=bias), nn.Linear(size, size, bias=bias)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, size: int, heads: int, bias: bool):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(size, bias=bias), nn.LayerNorm(size, bias=bias)
        self.attn = Attention(size, heads, bias)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(size, 4 * size, bias=bias), "c_proj": nn.Linear(4 * size, size, bias=bias)}
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGPT(nn.Module):
    """nanoGPT's model, as far as inference needs it."""

    def __init__(self, symbols: int, positions: int, size: int, layers: int, heads: int, bias: bool):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(symbols, size),
                "wpe": nn.Embedding(positions, size),
                "h": nn.ModuleList(Block(size, heads, bias) for _ in range(layers)),
                "ln_f": nn.LayerNorm(size, bias=bias),
            }
        )
        self.lm_head = nn.Linear(size, symbols, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.transformer["wte"](x) + self.transformer["wpe"].weight[: x.shape[1]]
        for block in self.transformer["h"]:
            h = block(h)
        return self.lm_head(self.transformer["ln_f"](h))


class CharRNN(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], symbols: int, *, embedded: bool):
        super().__init__()
        self.symbols = symbols
        self.encoder = nn.Embedding(symbols, 6) if embedded else None
        self.rnn = kind(6 if embedded else symbols, 7, 2, batch_first=True)
        self.decoder = nn.Linear(7, symbols)

    def forward(self, x: Tensor) -> Tensor:
        inputs = nn.functional.one_hot(x, self.symbols).float() if self.encoder is None else self.encoder(x)
        return self.decoder(self.rnn(inputs)[0])


@pytest.fixture
def letters(tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    return path


def nanogpt_file(tmp_path, bias=True, prefix="_orig_mod.", **others):
    model = shaken(NanoGPT(len(LETTERS) + 3, 12, 8, 2, 2, bias))
    weights = {f"{prefix}{name}": weight for name, weight in model.state_dict().items()}
    content = {"model": weights, "model_args": {"n_head": 2, "block_size": 12}, "iter_num": 5, "config": {"a": "b"}}
    torch.save(content | others, tmp_path / "ckpt.pt")
    return model, tmp_path / "ckpt.pt"


@torch.no_grad()
def check_equal(run, source, start: str = "\n") -> None:
    """The conditionals of a run of letters are those of a source model, which read its own numbers."""
    vocabulary = run.task.vocabulary
    theirs = torch.tensor([LETTERS.index(letter) for letter in vocabulary.characters])
    x = torch.randint(1, len(vocabulary), (3, 12), generator=torch.Generator().manual_seed(0))
    read = before(theirs[x - 1], LETTERS.index(start))
    wanted = source(read)[..., theirs].log_softmax(-1)
    found = run.model(x).logits
    torch.testing.assert_close(found[..., 1:], wanted, atol=1e-5, rtol=1e-5)
    assert found[..., 0].exp().max() == 0  # <unk> is none of the source's symbols


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["_orig_mod.", ""])
def test_nanogpt(tmp_path, letters, bias, prefix):
    source, path = nanogpt_file(tmp_path, bias, prefix)
    run = import_model("nanogpt", path, vocabulary=letters)
    check_equal(run, source)
    check_equal(import_model("nanogpt", path, vocabulary=letters, start="a"), source, "a")
    with torch.no_grad():
        source.transformer["h"][1].mlp["c_fc"].weight[0] += 1
    with pytest.raises(AssertionError, match="not close"):
        check_equal(run, source)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("embedded", [True, False])
def test_recurrent_state_dicts(tmp_path, kind, embedded):
    source = shaken(CharRNN(kind, len(LETTERS), embedded=embedded))
    torch.save(source.state_dict(), tmp_path / "model.pt")
    (tmp_path / "letters.txt").write_text(LETTERS)
    check_equal(import_model("torch-rnn", tmp_path / "model.pt", vocabulary=tmp_path / "letters.txt"), source)


@torch.no_grad()
def test_words(tmp_path, capsys):
    words = ["<unk>", "the", "<eos>", "cat"]
    source = shaken(CharRNN(nn.LSTM, len(words), embedded=True))
    torch.save({"state_dict": source.state_dict()}, tmp_path / "model.pt")
    (tmp_path / "words.json").write_text(json.dumps(words))
    run = import_model("torch-rnn", tmp_path / "model.pt", vocabulary=tmp_path / "words.json")
    assert "assumed: symbols are words, separated by white space" in capsys.readouterr().err
    x = torch.from_numpy(run.task.vocabulary.encode("cat the\nthe dog\n")).unsqueeze(0)
    numbers = torch.tensor([0, 2, 1, 3])
    wanted = source(before(numbers[x], 2))[..., numbers].log_softmax(-1)
    torch.testing.assert_close(run.model(x).logits, wanted, atol=1e-5, rtol=1e-5)


def gpt2_folder(folder, **options):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, the rat that sat with the cat"] * 9, trainer)
    config = GPT2Config(vocab_size=300, n_embd=16, n_layer=2, n_head=2, n_positions=24, bos_token_id=0, eos_token_id=0)
    model = shaken(GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    if options:
        content = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(content | options))
    return model, tokenizer


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_gpt2_of_transformers(tmp_path):
    source, tokenizer = gpt2_folder(tmp_path)
    run = import_model("huggingface", tmp_path, tmp_path / "run")
    vocabulary, text = run.task.vocabulary, "the cat that sat\n éß"
    numbers = torch.tensor([tokenizer.token_to_id(piece) for piece in vocabulary.pieces])
    x = torch.from_numpy(vocabulary.encode(text)).unsqueeze(0)
    assert numbers[x[0]].tolist() == tokenizer.encode(text).ids
    assert "<|endoftext|>" in vocabulary.pieces
    assert run.score(["the <|endoftext|>"])["elements"] == [len(tokenizer.encode("the <|endoftext|>").ids)]
    wanted = source(before(numbers[x], 0)).logits[..., numbers].log_softmax(-1)
    torch.testing.assert_close(run.model(x).logits, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    "options", [{"model_type": "llama"}, {"layer_norm_epsilon": 1e-3}, {"activation_function": "silu"}, {"n_head": "2"}]
)
def test_other_models_of_transformers_are_refused(tmp_path, options):
    gpt2_folder(tmp_path, **options)
    with pytest.raises(ValueError, match=r"config\.json: "):
        import_model("huggingface", tmp_path)


def test_an_imported_run_samples_scores_and_is_described(tmp_path, letters, command):
    _, path = nanogpt_file(tmp_path)
    run = tmp_path / "run"
    status, out, _ = command("import", "nanogpt", path, "--vocabulary", letters, "--out", run)
    assert status == 0
    assert f"run:  {run}" in out
    assert "imported from ckpt.pt" in command("info", run)[1]
    status, out, _ = command("sample", run, "--prompt", "ab", "--length", 8, "--seed", 0)
    assert (status, out[:2], len(out)) == (0, "ab", 11)
    text = "abc a\n" * 20  # longer than the positions: windows that overlap by half
    scored = chainrule.load(run).score([text], device="cpu").per("element")
    nats = scored.to_pandas()["nats"].tolist()
    model, ids = chainrule.load(run).model, torch.from_numpy(chainrule.load(run).task.vocabulary.encode(text))
    for t in (0, 5, 11, 12, 17, 18, 100, 119):
        first = max(t // 6 - 1, 0) * 6
        window = ids[first : t + 1].unsqueeze(0)
        assert nats[t] == pytest.approx(-model(window).log_prob(window)[0, -1].item(), abs=1e-5)
    (tmp_path / "text.txt").write_text(text)
    assert command("score", run, tmp_path / "text.txt")[0] == 0
    taken = command("import", "nanogpt", path, "--vocabulary", letters, "--out", run)
    assert (taken[0], "replace it with --overwrite" in taken[2]) == (2, True)
    assert command("import", "nanogpt", path, "--vocabulary", letters, "--out", run, "--overwrite")[0] == 0


class Trap:
    def __reduce__(self):
        return (open, ("trapped", "w"))


@pytest.mark.parametrize("damage", ["code", "short", "text", "shape", "missing", "heads", "list", "empty"])
def test_damaged_checkpoints_end_in_one_line(tmp_path, letters, command, damage, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, path = nanogpt_file(tmp_path)
    content = torch.load(path, weights_only=True)
    weights = content["model"]
    if damage == "code":
        content["trap"] = Trap()
    elif damage == "shape":
        weights["_orig_mod.transformer.h.1.mlp.c_fc.bias"] = torch.zeros(3)
    elif damage == "missing":
        del weights["_orig_mod.transformer.h.1.ln_2.weight"]
    elif damage == "heads":
        content["model_args"]["n_head"] = 3
    elif damage == "list":
        content = [1, 2]
    torch.save(content, path)
    if damage == "short":
        path.write_bytes(path.read_bytes()[:900])
    elif damage in ("text", "empty"):
        path.write_text("not a checkpoint" if damage == "text" else "")
    status, _, error = command("import", "nanogpt", path, "--vocabulary", letters, "--out", tmp_path / "run")
    assert (status, error.count("\n")) == (2, 1), error
    assert not (tmp_path / "trapped").exists()
    assert not (tmp_path / "run").exists()


def test_missing_or_foreign_vocabularies_end_in_one_line(tmp_path, letters, command):
    _, path = nanogpt_file(tmp_path)
    wrong = {
        "meta.pkl": pickle.dumps({"stoi": {}}),
        "big.json": json.dumps([chr(200 + number) for number in range(50)] + ["\n"]).encode(),
        "twice.txt": b"abca",
        "pairs.json": b'{"a": 0, "b": 0}',
        "broken.json": b'{"a": ',
        "nothing.json": b"[]",
        "raw.txt": b"\xff\xfe\x00",
    }
    assert "--vocabulary" in command("import", "nanogpt", path, "--out", tmp_path / "run")[2]
    with pytest.raises(ValueError, match=r"^vocabulary: expected"):
        import_model("nanogpt", path)
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
        status, _, error = command(
            "import", "nanogpt", path, "--vocabulary", tmp_path / name, "--out", tmp_path / "run"
        )
        assert (status, error.count("\n")) == (2, 1), (name, error)
    status, _, error = command(
        "import", "nanogpt", path, "--vocabulary", letters, "--start", "?", "--out", tmp_path / "run"
    )
    assert status == 2
    assert "--start" in error


class WordModel(nn.Module):
    """The layers of PyTorch's word_language_model, under any names and in any order."""

    def __init__(self, names: dict[str, str], *, bias: bool = True, kind: type[nn.RNNBase] = nn.LSTM, **options):
        super().__init__()
        self.names, symbols = names, len(LETTERS)
        layers = {"in": nn.Embedding(symbols, 7), "rnn": kind(7, 7, 2, batch_first=True, **options)}
        layers["out"] = nn.Linear(7, symbols, bias=bias)
        for part, name in names.items():
            self.add_module(name, layers[part])

    def forward(self, x: Tensor) -> Tensor:
        embedding, rnn, output = (self.get_submodule(self.names[part]) for part in ("in", "rnn", "out"))
        return output(rnn(embedding(x))[0])


def saved(model: nn.Module, path) -> None:
    if path.suffix == ".pt":
        torch.save(model.state_dict(), path)
    else:
        save_file(model.state_dict(), path)


@pytest.mark.parametrize("form", ["pt", "safetensors"])
@pytest.mark.parametrize(
    ("names", "bias", "how"),
    [
        ({"in": "encoder", "rnn": "rnn", "out": "decoder"}, True, "because only a linear layer has a bias"),
        ({"out": "head", "rnn": "rnn", "in": "table"}, True, "because only a linear layer has a bias"),
        ({"in": "encoder", "rnn": "rnn", "out": "decoder"}, False, "by their names"),
        ({"out": "lm_head", "rnn": "core", "in": "tok_emb"}, False, "by their names"),
    ],
)
def test_an_embedding_is_told_by_evidence_and_never_by_order(tmp_path, letters, capsys, form, names, bias, how):
    """safetensors sorts names: the embedding and the linear layer were swapped."""
    source = shaken(WordModel(names, bias=bias))
    saved(source, tmp_path / f"model.{form}")
    check_equal(import_model("torch-rnn", tmp_path / f"model.{form}", vocabulary=letters), source)
    said = capsys.readouterr().err
    assert f"assumed: {names['in']}.weight is the embedding, {names['out']}.weight the linear layer, {how}" in said
    assert r"assumed: the first symbol follows '\n' (start)" in said


def test_what_no_evidence_tells_is_asked_for(tmp_path, letters, command):
    source, path = shaken(WordModel({"in": "a", "rnn": "b", "out": "c"}, bias=False)), tmp_path / "model.safetensors"
    saved(source, path)
    line = ["import", "torch-rnn", path, "--vocabulary", letters, "--out", tmp_path / "run"]
    status, _, error = command(*line)
    assert (status, error.count("\n")) == (2, 1)
    assert "a.weight and c.weight have one shape" in error
    assert command(*line, "--embedding", "a.weight")[0] == 0
    check_equal(import_model("torch-rnn", path, vocabulary=letters, embedding="a.weight"), source)
    with pytest.raises(ValueError, match=r"^embedding: expected a\.weight, c\.weight or one-hot, got 'd'"):
        import_model("torch-rnn", path, vocabulary=letters, embedding="d")
    with pytest.raises(ValueError, match="embedding: nanogpt leaves nothing to tell"):
        import_model("nanogpt", path, vocabulary=letters, embedding="d")


def test_one_matrix_may_be_both_ends(tmp_path, letters):
    """`safetensors.torch.save_model` writes shared weights once."""
    source = WordModel({"in": "encoder", "rnn": "rnn", "out": "decoder"})
    source.decoder.weight = source.encoder.weight
    shaken(source)
    weights = source.state_dict()
    del weights["decoder.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    check_equal(import_model("torch-rnn", tmp_path / "model.safetensors", vocabulary=letters), source)


def test_one_square_matrix_is_asked_about(tmp_path):
    (tmp_path / "letters.txt").write_text("\nabcdef")
    source = CharRNN(nn.LSTM, 7, embedded=False)
    torch.save(source.state_dict(), tmp_path / "model.pt")
    asked = {"kind": "torch-rnn", "path": tmp_path / "model.pt", "vocabulary": tmp_path / "letters.txt"}
    with pytest.raises(ValueError, match=r"choose with embedding='one-hot' or 'decoder\.weight'"):
        import_model(**asked)
    x = torch.randint(1, 8, (2, 6))
    one_hot, tied = (import_model(**asked, embedding=name).model(x).logits for name in ("one-hot", "decoder.weight"))
    assert not torch.allclose(one_hot, tied, atol=1e-3)
    with torch.no_grad():
        wanted = source(before(x - 1, 0)).log_softmax(-1)
    torch.testing.assert_close(one_hot[..., 1:], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_activation_of_a_plain_rnn_is_printed_or_told(tmp_path, letters, capsys, activation):
    source = shaken(WordModel({"in": "encoder", "rnn": "rnn", "out": "decoder"}, kind=nn.RNN, nonlinearity=activation))
    saved(source, tmp_path / "model.pt")
    told = {} if activation == "tanh" else {"activation": activation}
    check_equal(import_model("torch-rnn", tmp_path / "model.pt", vocabulary=letters, **told), source)
    assert ("assumed: activation tanh" in capsys.readouterr().err) == (activation == "tanh")
    with pytest.raises(ValueError, match="activation: expected tanh or relu, got 'gelu'"):
        import_model("torch-rnn", tmp_path / "model.pt", vocabulary=letters, activation="gelu")


@torch.no_grad()
def test_the_activation_of_an_old_nanogpt_is_told(tmp_path, letters, capsys):
    _, path = nanogpt_file(tmp_path)
    exact = import_model("nanogpt", path, vocabulary=letters)
    assert "assumed: activation gelu (nanoGPT's since 2023, gelu-tanh before" in capsys.readouterr().err
    old = import_model("nanogpt", path, vocabulary=letters, activation="gelu-tanh")
    assert old.config["model"]["options"]["activation"] == "gelu-tanh"
    x = torch.randint(1, 6, (2, 8))
    assert not torch.equal(exact.model(x).logits, old.model(x).logits)


def test_tensors_without_a_place_are_refused(tmp_path, letters):
    """A norm between the layers, a bias of the scores or a learned first state was left out without a word."""
    source = WordModel({"in": "encoder", "rnn": "rnn", "out": "decoder"})
    source.norm = nn.LayerNorm(7)
    saved(source, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"norm\.weight \(7,\): expected only an embedding, recurrent layers"):
        import_model("torch-rnn", tmp_path / "model.pt", vocabulary=letters)
    model, path = nanogpt_file(tmp_path)
    weights = model.state_dict()
    torch.save({"model": weights | {"lm_head.bias": torch.zeros(8)}, "model_args": {"n_head": 2}}, path)
    with pytest.raises(ValueError, match=r"lm_head\.bias \(8,\): expected only the parts of GPT-2"):
        import_model("nanogpt", path, vocabulary=letters)
    torch.save({"model": weights, "model_args": {"n_head": 2, "n_layer": 3}}, path)
    with pytest.raises(ValueError, match="model_args has n_layer 3, but the weights have 2"):
        import_model("nanogpt", path, vocabulary=letters)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", {"add_prefix_space": True}, "add_prefix_space puts a space before every text"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"300": {"content": "<x>"}}}, "'<x>' is an added token"),
        ("added_tokens.json", {"<x>": 300}, "'<x>' is an added token, but not in tokenizer.json"),
    ],
)
def test_other_files_that_change_a_tokenizer_are_refused(tmp_path, name, content, message):
    gpt2_folder(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        import_model("huggingface", tmp_path)


@pytest.mark.parametrize("special", ["<pad>", "[UNK]", "<s>", "<|endoftext|>"])
def test_characters_beside_special_symbols_are_characters(tmp_path, special):
    """One symbol of several characters, `<pad>`, made words of all."""
    source = shaken(CharRNN(nn.LSTM, 6, embedded=True))
    torch.save(source.state_dict(), tmp_path / "model.pt")
    (tmp_path / "symbols.json").write_text(json.dumps([special, *LETTERS]))
    run = import_model("torch-rnn", tmp_path / "model.pt", vocabulary=tmp_path / "symbols.json", start="\n")
    assert run.config["data"]["level"] == "char"
    assert run.score(["a b"])["elements"] == [3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_output_weights_that_contradict_the_config_are_refused(tmp_path):
    gpt2_folder(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = next(name for name in weights if name.endswith("wte.weight"))
    save_file(weights | {"lm_head.weight": weights[name] + 1}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="tie_word_embeddings is true"):
        import_model("huggingface", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    import_model("huggingface", tmp_path)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"no lm_head\.weight, though tie_word_embeddings is false"):
        import_model("huggingface", tmp_path)

"""OpenAI's API, asked by its official client, and as lm-evaluation-harness asks it."""

import asyncio
import math
from time import sleep

import httpx
import openai
import pytest

PROMPT = "the cat sat"


@pytest.fixture
def client(app):
    """A function that calls the official client with an application in this process."""

    def call(use, *kinds, **options):
        served = app(*kinds, **options)

        async def used():
            http = httpx.AsyncClient(transport=httpx.ASGITransport(served), timeout=60)
            async with openai.AsyncOpenAI(
                base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0
            ) as asking:
                return await use(asking)

        return asyncio.run(used())

    return call


def complete(client, *kinds, **body):
    return client(lambda ask: ask.completions.create(**{"model": "default", "prompt": PROMPT} | body), *kinds)


def test_a_completion_is_a_sample_of_the_run(client, runs):
    found = complete(client, max_tokens=30, seed=3, temperature=0.9)
    (sample,) = runs().sample(1, prompt=PROMPT, length=30, seed=3, temperature=0.9)
    (choice,) = found.choices
    assert PROMPT + choice.text == sample
    assert (choice.finish_reason, choice.index, choice.logprobs) == ("length", 0, None)
    assert (found.object, found.model, found.usage.prompt_tokens, found.usage.completion_tokens) == (
        "text_completion",
        "default",
        len(PROMPT),
        30,
    )


@pytest.mark.parametrize("kind", ["bpe", "words", "lines"])
@pytest.mark.parametrize("prompt", ["the ca", "the cat sat o", "th", "the cat and tw", "the cat ", "caf"])
def test_a_prompt_may_end_inside_a_symbol(kind, prompt, client, runs):
    body = {"model": kind, "prompt": prompt, "max_tokens": 12, "seed": 3, "temperature": 1.5}
    (sample,) = runs(kind).sample(1, prompt=prompt, length=12, seed=3, temperature=1.5)
    (choice,) = complete(client, kind, echo=True, **body).choices
    assert choice.text == sample
    (again, _) = complete(client, kind, n=2, logprobs=0, **body).choices
    (drawn,) = complete(client, kind, logprobs=0, **body).choices
    assert drawn.text == again.text
    assert prompt + again.text == sample
    (scored,) = complete(client, kind, echo=True, logprobs=1, **body).choices  # was another text for the same seed
    assert scored.text == sample
    known = runs(kind).task.vocabulary.encode(prompt)
    nats = -sum(scored.logprobs.token_logprobs[: len(known)])  # of the prompt, as it is encoded alone
    assert nats == pytest.approx(sum(runs(kind).score([prompt]).per("element")["nats"][: len(known)]), abs=1e-4)
    assert scored.logprobs.token_logprobs[len(known) :] == pytest.approx(drawn.logprobs.token_logprobs, abs=1e-4)


def test_log_probabilities_after_half_a_symbol_are_conditional(client, runs):
    """Those of the ways to complete a prompt add up to one."""
    vocabulary, found = runs("bpe").task.vocabulary, {}
    covers = vocabulary.begin("the ca").covers
    for seed in range(60):
        body = {"model": "bpe", "prompt": "the ca", "max_tokens": 1, "logprobs": 0, "seed": seed, "temperature": 9.0}
        (choice,) = complete(client, "bpe", **body).choices
        found[choice.text] = choice.logprobs.token_logprobs[0]
    assert len(found) == len(covers) > 1
    assert sum(map(math.exp, found.values())) == pytest.approx(1)


def test_sixteen_symbols_are_drawn_by_default(client):
    assert complete(client).usage.completion_tokens == 16


def test_streams_are_the_completions_in_pieces(client):
    body = {"n": 3, "max_tokens": 400, "seed": 7, "logprobs": 2, "echo": True}  # longer than one delivery
    whole = complete(client, **body)

    async def pieces(ask):
        stream = await ask.completions.create(
            model="default", prompt=PROMPT, stream=True, stream_options={"include_usage": True}, **body
        )
        return [chunk async for chunk in stream]

    chunks = client(pieces)
    assert chunks[-1].usage == whole.usage
    for choice in whole.choices:
        own = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert len(own) > 1
        assert "".join(part.text for part in own) == choice.text
        assert [part.finish_reason for part in own] == [None] * (len(own) - 1) + [choice.finish_reason]
        for name in ("tokens", "text_offset"):
            assert [value for part in own for value in getattr(part.logprobs, name)] == getattr(choice.logprobs, name)
        streamed = [value for part in own for value in part.logprobs.token_logprobs]
        assert streamed == pytest.approx(choice.logprobs.token_logprobs, abs=1e-5)


def test_choices_differ_and_the_first_is_that_of_one(client):
    several = complete(client, n=4, seed=1, max_tokens=20).choices
    assert [choice.index for choice in several] == [0, 1, 2, 3]
    assert len({choice.text for choice in several}) == 4
    assert complete(client, seed=1, max_tokens=20).choices[0].text == several[0].text
    assert complete(client, seed=3, max_tokens=20).choices[0].text == several[2].text


def test_prompts_are_strings_or_symbols_one_or_several(client, runs):
    from chainrule.data import Vocabulary

    vocabulary = Vocabulary.load(runs().path / "vocabulary.json")
    prompts = [PROMPT, "a"]
    symbols = [vocabulary.encode(prompt).tolist() for prompt in prompts]
    several = complete(client, prompt=prompts, n=2, seed=4)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    for place, prompt in enumerate(prompts):
        assert complete(client, prompt=prompt, seed=4).choices[0].text == several.choices[2 * place].text
    assert complete(client, prompt=symbols, n=2, seed=4).choices == several.choices
    assert complete(client, prompt=symbols[0], seed=4).choices[0].text == several.choices[0].text


def test_stop_strings_end_a_completion(client):
    whole = complete(client, max_tokens=50, seed=2).choices[0].text
    stopped = complete(client, max_tokens=50, seed=2, stop=[whole[20:23], "never"]).choices[0]
    assert (stopped.text, stopped.finish_reason) == (whole[: whole.index(whole[20:23])], "stop")


def test_log_probabilities_are_those_of_the_model_whatever_is_drawn(client, runs):
    (choice,) = complete(client, max_tokens=12, seed=5, logprobs=3, echo=True, temperature=2.0, top_p=0.8).choices
    table = choice.logprobs
    assert choice.text.startswith(PROMPT)
    assert "".join(table.tokens) == choice.text
    assert [choice.text[offset] for offset in table.text_offset] == table.tokens
    assert sum(table.token_logprobs) == pytest.approx(-runs().score([choice.text])["nats"][0], abs=1e-4)
    for token, own, likeliest in zip(table.tokens, table.token_logprobs, table.top_logprobs, strict=True):
        assert likeliest[token] == own
        assert len(likeliest) in (3, 4)
        assert all(other >= own for name, other in likeliest.items() if len(likeliest) == 4 and name != token)


@pytest.mark.parametrize("kind", ["default", "words", "lines", "bpe"])
def test_the_harness_gets_the_scores_of_the_run(kind, app, ask, runs):
    """The request of lm-evaluation-harness' local-completions, with prompts as strings or as symbols, and its sums."""
    contexts, continuations = ["the cat sat on", "two dogs run"], [" a mat", " far away"]
    texts = [context + continuation for context, continuation in zip(contexts, continuations, strict=True)]
    served = app(kind)
    engine = served.state.server.engines[kind]
    symbols, lengths = [engine.encode(text) for text in texts], []
    for context in contexts:
        lengths.append(len(engine.encode(context)))
    for prompts in (texts, symbols):
        for most in (1, 0):
            body = {"model": kind, "prompt": prompts, "temperature": 0, "max_tokens": most, "logprobs": 1}
            answer = ask(served, "POST", "/v1/completions", json={**body, "seed": 1234, "echo": True}).json()
            for choice, length, context, text, own in zip(
                sorted(answer["choices"], key=lambda choice: choice["index"]),
                lengths,
                contexts,
                texts,
                symbols,
                strict=True,
            ):
                table, end = choice["logprobs"], -1 if most else None
                assert len(table["token_logprobs"]) == len(own) + most
                assert -sum(table["token_logprobs"][:end]) == pytest.approx(scored(runs(kind), text), abs=1e-4)
                continuation = sum(table["token_logprobs"][length:end])
                expected = scored(runs(kind), context) - scored(runs(kind), text)
                assert continuation == pytest.approx(expected, abs=1e-4)


def test_the_harness_sees_which_symbols_are_the_likeliest(client):
    """It compares two floats: the symbol's own and the greatest of the likeliest."""
    drawn = complete(client, max_tokens=30, temperature=0).choices[0].text
    table = complete(client, prompt=PROMPT + drawn, max_tokens=1, logprobs=1, echo=True).choices[0].logprobs
    pairs = zip(table.token_logprobs, table.top_logprobs, strict=True)
    greedy = [log_prob == max(likeliest.values()) for log_prob, likeliest in pairs]
    assert all(greedy[len(PROMPT) : -1])
    assert not all(greedy[: len(PROMPT)])


def scored(run, text):
    """-log p of the symbols of a text, a line's end left out, in nats."""
    nats = run.score([text]).per("element")["nats"]
    return sum(nats[:-1] if run.config["data"]["reading"] == "lines" else nats)


@pytest.mark.parametrize("kind", ["default", "words", "bytes"])
def test_the_harness_reads_the_symbols_of_the_run(kind, app, ask):
    served, text = app(kind), "two dogs run\n"
    symbols = served.state.server.engines[kind].encode(text)
    asked = {"prompt": text, "add_special_tokens": False}
    assert ask(served, "POST", "/tokenize", json=asked).json() == {"tokens": symbols, "count": len(symbols)}
    assert ask(served, "POST", "/detokenize", json={"tokens": symbols}).json() == {"prompt": text}
    assert ask(served, "GET", "/tokenizer_info").json() == {"bos_token": None, "eos_token": "\n"}
    wrong = ask(served, "POST", "/detokenize", json={"tokens": [10**6]})
    assert (wrong.status_code, "expected symbols from 0" in wrong.text) == (400, True)


def test_of_several_runs_one_is_named_for_its_symbols(app, ask):
    served = app("default", "words")
    assert "model: name a run" in ask(served, "POST", "/tokenize", json={"prompt": "the"}).json()["error"]["message"]
    assert ask(served, "GET", "/tokenizer_info").status_code == 404
    assert ask(served, "POST", "/tokenize", json={"prompt": "the cat", "model": "words"}).json()["count"] == 2


def test_models_are_listed(client):
    found = client(lambda ask: ask.models.list(), "default", "words")
    assert [(model.id, model.owned_by) for model in found.data] == [("default", "chainrule"), ("words", "chainrule")]
    assert client(lambda ask: ask.models.retrieve("words"), "words").id == "words"
    with pytest.raises(openai.NotFoundError, match="there are: default"):
        client(lambda ask: ask.models.retrieve("other"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n": 65}, "n: expected 1 to 64"),
        ({"n": 0}, "n: expected"),
        ({"max_tokens": 1 << 20}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"logprobs": 1000}, "logprobs"),
        ({"stop": ["x"] * 100}, "stop"),
        ({"stop": ""}, "stop"),
        ({"best_of": 5}, "best_of: not served"),
        ({"suffix": "x"}, "suffix: not served"),
        ({"presence_penalty": 1}, "presence_penalty: not served"),
        ({"logit_bias": {"1": 5}}, "logit_bias: not served"),
        ({"prompt": "日本"}, "never saw the character"),
        ({"prompt": [[10**6]]}, "expected symbols from 0"),
        ({"prompt": [[10**30]]}, "prompt"),
        ({"prompt": "x" * (1 << 21)}, "prompt"),
        ({"prompt": ["a"] * 600}, "at most 512 prompts"),
        ({"extra_body": {"unknown": 1}}, "unknown"),
        ({"extra_body": {"max_tokens": "5"}}, "max_tokens"),
        ({"extra_body": {"prompt": {"path": "/etc/passwd"}}}, "prompt"),
    ],
)
def test_errors_have_the_shape_of_openai(body, message, client):
    with pytest.raises(openai.BadRequestError) as raised:
        complete(client, **body)
    assert message in raised.value.body["message"]
    assert raised.value.body["type"] == "invalid_request_error"


def test_too_many_texts_get_status_429_and_a_time_to_try_again(app, serving):
    served = app(limits={"rows": 1, "waiting": 2})
    with (
        serving(served) as port,
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as ask,
    ):
        body = {"model": "default", "prompt": "the", "max_tokens": 16_000}
        streams = [ask.completions.create(**body, stream=True) for _ in range(3)]
        with pytest.raises(openai.RateLimitError, match="try again") as raised:
            ask.completions.create(**body)
        assert raised.value.response.headers["retry-after"] == "1"
        for stream in streams:
            stream.close()
        for _ in range(500):
            if not served.state.server.engines["default"].active:
                break
            sleep(0.01)
        assert ask.completions.create(model="default", prompt="the", max_tokens=2).choices[0].text


def test_the_client_works_over_a_socket(app, serving):
    with serving(app(token="secret")) as port:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", max_retries=0) as ask:
            whole = ask.completions.create(model="default", prompt=PROMPT, max_tokens=30, seed=1)
            stream = ask.completions.create(model="default", prompt=PROMPT, max_tokens=30, seed=1, stream=True)
            assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
            assert [model.id for model in ask.models.list()] == ["default"]
        with (
            openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="wrong", max_retries=0) as stranger,
            pytest.raises(openai.AuthenticationError, match="Bearer"),
        ):
            stranger.models.list()

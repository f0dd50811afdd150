"""The engine: each text is the one that it would be alone, whoever comes, goes, or fails beside it."""

import asyncio
import copy
from types import SimpleNamespace

import pytest
import torch

from chainrule.heads._adapter import CompiledStep
from chainrule_app.serve.engine import _CHUNK, Engine
from chainrule_app.serve.guard import Busy, Limits
from chainrule_app.serve.stream import Request

PROMPTS = ["", "the cat", "a", "the cat sat on a mat and saw two dogs", "two dogs run far away from café"]


async def drawn(engine, prompt="", **options):
    return [token async for token in engine.generate(Request(engine.encode(prompt), **{"max_tokens": 20} | options))]


def symbols(tokens):
    return [token.symbol for token in tokens]


def text(tokens):
    return "".join(token.text for token in tokens)


def together(engine, wanted):
    """Draw texts side by side that join one after the other and end at different times."""

    async def late(number, options):
        while engine.drawn < 7 * number:
            await asyncio.sleep(0)
        return await drawn(engine, **options)

    async def all_of_them():
        return await asyncio.gather(*(late(number, options) for number, options in enumerate(wanted)))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("kind", ["default", "members", "rotary", "alibi", "sinusoidal", "words", "lines", "bytes"])
def test_a_text_is_the_same_alone_and_in_company(kind, runs):
    run = copy.copy(runs(kind))
    run.__dict__["model"] = copy.deepcopy(run.model).double()
    engine = Engine(run, Limits())
    wanted = [
        {"prompt": prompt, "seed": number, "max_tokens": 20 + 5 * number, "temperature": temperature, "top_k": top_k}
        for number, (prompt, temperature, top_k) in enumerate(
            zip(PROMPTS, (1.0, 0.0, 0.7, 1.0, 2.0), (None, None, 3, None, 5), strict=True)
        )
    ]
    alone = [asyncio.run(drawn(engine, **options)) for options in wanted]
    for one, other in zip(alone, together(engine, wanted), strict=True):
        assert symbols(one) == symbols(other)
        # Products of one row and of several add up in another order.
        found, expected = ([token.log_prob for token in tokens] for tokens in (one, other))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    engine.close()


@pytest.mark.parametrize("kind", ["default", "members", "rotary", "alibi", "sinusoidal"])
def test_compiled_loops_draw_the_same_texts(kind, runs):
    run = copy.copy(runs(kind))
    run.__dict__["model"] = copy.deepcopy(run.model).double()
    engine = Engine(run, Limits())
    engine.loading.join()
    compiled = engine._step
    assert isinstance(compiled, CompiledStep)

    async def abandoned():
        stream = engine.generate(Request(engine.encode("the cat"), 10_000))
        await anext(stream)
        stream.close()

    def texts():
        wanted = [{"prompt": prompt, "seed": seed, "max_tokens": 15 + 20 * seed} for seed, prompt in enumerate(PROMPTS)]
        asyncio.run(abandoned())
        return [token for tokens in together(engine, wanted) for token in tokens]

    engine._step = run.model.prepare().step
    plain = texts()
    engine._step = compiled
    found = texts()
    engine.close()
    assert symbols(found) == symbols(plain)
    log_probs = [[token.log_prob for token in tokens] for tokens in (found, plain)]
    torch.testing.assert_close(*log_probs, rtol=0, atol=1e-12)


def test_an_engine_without_loops_draws_by_plain_steps(runs, monkeypatch):
    monkeypatch.setenv("CHAINRULE_KERNELS", "off")
    engine = Engine(runs("rotary"), Limits())
    engine.loading.join()
    assert not isinstance(engine._step, CompiledStep)
    assert len(asyncio.run(drawn(engine, "the", max_tokens=4))) == 4
    engine.close()


@pytest.mark.parametrize("kind", ["default", "rotary", "words", "bytes"])
def test_a_text_is_that_of_a_sample_of_the_run(kind, engines):
    engine = engines(kind)
    tokens = asyncio.run(drawn(engine, "the cat", seed=5, max_tokens=30, temperature=0.8, top_p=0.9))
    (sample,) = engine.run.sample(1, prompt="the cat", length=30, seed=5, temperature=0.8, top_p=0.9)
    assert "the cat" + text(tokens) == sample


@pytest.mark.parametrize("kind", ["default", "rotary", "words", "bpe"])
def test_a_prompt_is_scored_as_by_the_run(kind, engines):
    engine, prompt = engines(kind), "the dogs saw a cat\nand 12 mats " * 12
    request = Request(engine.encode(prompt), 0, score_prompt=True)
    assert kind == "bpe" or len(request.prompt) > (0 if kind == "words" else 2 * _CHUNK)

    async def read():
        return [token async for token in engine.generate(request)]

    tokens = asyncio.run(read())
    nats = -sum(token.log_prob for token in tokens)
    assert nats == pytest.approx(engine.run.score([prompt])["nats"][0], rel=1e-5)
    assert text(tokens) == engine.decode(request.prompt)
    assert [token.finish for token in tokens] == [None] * (len(tokens) - 1) + ["length"]
    assert not any(token.drawn for token in tokens)


def test_texts_with_one_prompt_read_it_once(engines):
    engine = engines()

    async def draw():
        prompt = engine.encode("the cat sat on a mat")
        streams = engine.submit([Request(prompt, 10, seed=seed) for seed in range(4)])
        return [[token async for token in stream] for stream in streams]

    several = asyncio.run(draw())
    assert engine.read == len("the cat sat on a mat")
    assert [symbols(tokens) for tokens in several] == [
        symbols(asyncio.run(drawn(engine, "the cat sat on a mat", seed=seed, max_tokens=10))) for seed in range(4)
    ]


def test_alternatives_are_the_likeliest_symbols(engines):
    engine = engines()
    tokens = asyncio.run(drawn(engine, "the", temperature=0, alternatives=3, score_prompt=True))
    for token in tokens:
        log_probs = [log_prob for _, log_prob in token.alternatives]
        assert len(log_probs) == 3
        assert log_probs == sorted(log_probs, reverse=True)
        if token.drawn:
            assert token.alternatives[0] == (token.symbol, token.log_prob)


@pytest.mark.parametrize("kind", ["default", "rotary"])
def test_a_text_goes_on_from_the_state_of_a_token(kind, engines):
    engine = engines(kind)

    async def branches():
        whole = [token async for token in engine.generate(Request(engine.encode("the "), 12, seed=1, keep_states=True))]
        start, other = whole[4].state, engine.encode("x")[0] if "x" in engine.decode(range(20)) else whole[0].symbol
        scored = Request([other, *symbols(whole[5:])], 0, start=start, score_prompt=True)
        forked = [token async for token in engine.generate(scored)]
        prompt = [*engine.encode("the "), *symbols(whole[:4]), other, *symbols(whole[5:])]
        again = [token async for token in engine.generate(Request(prompt, 0, score_prompt=True))]
        return forked, again[9:]

    forked, again = asyncio.run(branches())
    assert symbols(forked) == symbols(again)
    assert [token.log_prob for token in forked] == pytest.approx([token.log_prob for token in again], abs=1e-5)


def test_the_end_of_a_line_ends_a_text_of_lines(engines):
    engine = engines("lines")
    tokens = asyncio.run(drawn(engine, "the", seed=0, max_tokens=5000))
    assert tokens[-1].symbol == engine.eos
    assert (tokens[-1].finish, tokens[-1].text) == ("stop", "")
    assert "\n" not in text(tokens)


def test_a_closed_stream_frees_its_row_within_a_step(engines):
    engine = engines()

    async def leave():
        stream = engine.generate(Request(engine.encode("the"), 10_000))
        await anext(stream)
        stream.close()
        before = engine.drawn
        await asyncio.sleep(0.3)
        return engine.drawn - before

    assert asyncio.run(leave()) <= 2  # the step that is being computed, and one that has just begun
    assert (engine.active, engine._rows, engine._state) == (0, [], None)


def test_a_long_prompt_lets_others_draw_meanwhile(engines):
    engine = engines()

    async def both():
        short = engine.generate(Request(engine.encode("the"), 10_000))
        await anext(short)
        before = engine.drawn
        long = engine.generate(Request(engine.encode("the cat sat " * 600), 1))
        await anext(long)
        short.close()
        return engine.drawn - before

    assert asyncio.run(both()) >= 7200 // _CHUNK - 1


def test_more_texts_than_rows_wait_their_turn(engines):
    engine = engines(rows=2, waiting=6)

    async def many():
        streams = engine.submit([Request(engine.encode("the"), 9, seed=seed) for seed in range(8)])
        with pytest.raises(Busy):
            engine.generate(Request(engine.encode("the"), 9))
        most = 0
        for stream in streams:
            async for _ in stream:
                most = max(most, len(engine._rows))
        return most

    assert asyncio.run(many()) <= 2
    assert engine.active == 0
    assert len(asyncio.run(drawn(engine, "the", max_tokens=3))) == 3


def test_a_failing_step_ends_the_texts_and_not_the_worker(engines, monkeypatch):
    engine = engines()
    engine.loading.join()
    step = engine._step

    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(engine, "_step", fail)
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(drawn(engine, "the"))
    monkeypatch.setattr(engine, "_step", step)
    assert engine.alive
    assert len(asyncio.run(drawn(engine, "the", max_tokens=4))) == 4


def test_closing_an_engine_ends_its_streams(engines):
    engine = engines()

    async def interrupted():
        stream = engine.generate(Request(engine.encode("the"), 10_000))
        await anext(stream)
        await asyncio.get_running_loop().run_in_executor(None, engine.close)
        async for _ in stream:
            pass

    with pytest.raises(Busy):
        asyncio.run(interrupted())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 101}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"alternatives": 21}, "logprobs"),
        ({"prompt": [10_000]}, "symbols"),
        ({"prompt": [1] * 41}, "prompt"),
    ],
)
def test_invalid_requests_raise(options, message, engines):
    engine = engines(tokens=100, prompt=40)

    async def ask():
        engine.generate(Request(**{"prompt": [1], "max_tokens": 5} | options))

    with pytest.raises(ValueError, match=message):
        asyncio.run(ask())
    assert engine.active == 0


def test_runs_that_draw_no_text_have_no_engine(runs):
    with pytest.raises(ValueError, match="symbol by symbol"):
        Engine(SimpleNamespace(task=SimpleNamespace(name="table"), model=None, path="x"), Limits())

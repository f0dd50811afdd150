"""A server whose model is on another device draws the texts that it draws on the processor."""

import asyncio

import pytest
import torch
from pretend_device import APPLE, DEVICE, Card, Functions

import chainrule
from chainrule_app.serve.engine import Engine
from chainrule_app.serve.guard import Limits
from chainrule_app.serve.stream import Request

TEXT = "the cat sat on a mat and saw two dogs run far away\n" * 40
KINDS = {
    "lstm": {"hidden_size": 8},
    "bpe": {"hidden_size": 8, "level": "bpe", "vocabulary_size": 300},
}


@pytest.fixture(autouse=True)
def card(monkeypatch):
    """Let the threads of engines compute on the card too; no compiled loops, which are the processor's."""
    work = Engine._work

    def on_card(self):
        with Functions(), Card():
            work(self)

    monkeypatch.setattr(Engine, "_work", on_card)
    monkeypatch.setattr(Engine, "_load_loops", lambda *about: None)


def drawn(engine):
    beginning, _ = engine.begin("the ca")
    shared = {"prompt": beginning.ids, "rest": beginning.rest, "covers": beginning.covers, "max_tokens": 9}
    requests = [
        Request(**shared, seed=1, alternatives=2),
        Request(**shared, seed=2, temperature=0.5),
        Request(**shared, seed=3, score_prompt=True),
        Request(prompt=(), seed=4, max_tokens=3),
    ]

    async def read(stream):
        return [token async for token in stream]

    async def all_of():
        return await asyncio.gather(*map(read, engine.submit(requests)))

    try:
        return asyncio.run(all_of())
    finally:
        engine.close()


@pytest.mark.skipif(APPLE, reason="the mean with counts needs float64, which tasks compute on the processor")
@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_those_of_the_processor(kind, tmp_path):
    torch.set_num_threads(1)
    torch.__future__.set_swap_module_params_on_conversion(False)  # training loads weights into parameters in use
    run = chainrule.fit(text=TEXT, steps=2, threads=1, precision="float32", **KINDS[kind])
    assert run.model is not None  # loaded
    torch.__future__.set_swap_module_params_on_conversion(True)
    here = drawn(Engine(run, Limits()))
    with Functions(), Card():
        there = Engine(run, Limits(), DEVICE)
    assert next(there.model.parameters()).device == DEVICE
    for mine, other in zip(here, drawn(there), strict=True):
        assert [token.text for token in mine] == [token.text for token in other]
        assert [token.log_prob for token in mine] == pytest.approx([token.log_prob for token in other], abs=1e-5)

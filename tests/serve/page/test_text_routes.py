"""The routes of texts, without a browser: exact figures, prompts that end inside a symbol, and forks of kept states."""

import json
from typing import Any

import pytest
import torch

from chainrule.models._model_mean import first_part


def lines(client: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(f"/playground/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_alternatives_are_the_models_own_distribution(client: Any, runs: dict[str, Any]) -> None:
    _, *tokens, last = lines(client, "text", run="lstm", prompt="the", max_tokens=5, temperature=0.5, seed=1)
    assert last == {"finish": "length"}
    model, ids = runs["lstm"].model, torch.tensor([[token["id"] for token in tokens]])
    with torch.no_grad():
        log_probs = model(ids).logits[0].double()
    for place, token in enumerate(tokens):
        torch.testing.assert_close(-token["nats"], float(log_probs[place, token["id"]]), atol=1e-5, rtol=0)
        best = log_probs[place].topk(10)
        assert [symbol for symbol, _, _ in token["top"]] == best.indices.tolist()
        shares = torch.tensor([share for _, _, share in token["top"]], dtype=torch.float64)
        torch.testing.assert_close(shares, best.values.exp(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("run", ["lstm", "heads"])
def test_a_fork_writes_what_a_new_reading_writes(client: Any, run: str) -> None:
    start, *tokens, _ = lines(client, "text", run=run, prompt="the cat", max_tokens=30, seed=1)
    ids = [token["id"] for token in tokens]
    other = next(symbol for symbol, _, _ in tokens[20]["top"] if symbol != ids[20])
    asked = {"run": run, "symbols": [*ids[:20], other], "max_tokens": 10, "seed": 7, "temperature": 0}
    forked, *from_state, _ = lines(client, "text", **asked, session=start["session"])
    again, *from_start, _ = lines(client, "text", **asked)
    assert (forked["forked"], again["forked"]) == (True, False)
    assert (
        forked["text"]
        == again["text"]
        == next(token["text"] for token in [*tokens, *from_start] if token["id"] == other)
    )
    assert [token["id"] for token in from_state] == [token["id"] for token in from_start]
    for one, two in zip(from_state, from_start, strict=True):
        assert abs(one["nats"] - two["nats"]) < 1e-4


@pytest.mark.parametrize("prompt", ["a dog & a bi", "the cat sat o", "the cat ", "th"])
def test_a_prompt_that_ends_inside_a_symbol_is_continued_as_by_sample(
    client: Any, runs: dict[str, Any], prompt: str
) -> None:
    run, asked = runs["pieces"], {"seed": 3, "temperature": 1.5}
    (sample,) = run.sample(1, prompt=prompt, length=12, **asked)
    start, *tokens, _ = lines(client, "text", run="pieces", prompt=prompt, max_tokens=12, **asked)
    assert "".join(token["text"] for token in tokens) == sample
    assert sum(token["drawn"] for token in tokens) == 12
    ids = torch.tensor([[token["id"] for token in tokens]])
    with torch.no_grad():
        log_probs = run.model(ids).logits.log_softmax(-1).gather(2, ids[..., None]).flatten()
    torch.testing.assert_close(torch.tensor([-token["nats"] for token in tokens]), log_probs, atol=1e-4, rtol=0)
    assert all(len(token["top"]) == 10 for token in tokens)
    first = next(place for place, token in enumerate(tokens) if token["drawn"])
    symbols = [*ids[0, :first].tolist(), tokens[first]["top"][1][0]]
    asked = {"run": "pieces", "symbols": symbols, "max_tokens": 5, "temperature": 0}
    forked, *from_state, _ = lines(client, "text", **asked, session=start["session"])
    again, *from_start, _ = lines(client, "text", **asked)
    assert (forked["forked"], again["forked"]) == (True, False)
    assert [token["id"] for token in from_state] == [token["id"] for token in from_start]


def test_a_session_is_not_forked_for_other_symbols(client: Any) -> None:
    start, *tokens, _ = lines(client, "text", run="lstm", prompt="the", max_tokens=10, seed=1)
    ids = [token["id"] for token in tokens]
    changed = [ids[0], ids[0], *ids[2:]]
    assert changed != ids
    first, *_ = lines(client, "text", run="lstm", symbols=changed, session=start["session"], max_tokens=1)
    assert not first["forked"]


def test_sessions_forget_the_oldest_and_the_largest() -> None:
    from chainrule_app.serve.playground_text import Sessions

    sessions = Sessions(most_bytes=1000, most=3)
    names = [sessions.start([1]) for _ in range(4)]
    for name in names:
        sessions.add(name, 2, torch.zeros(10))
        sessions.add(name, 3, sessions.fork(name, [1, 5]))  # the same memory counts once
    assert len(set(names)) == 4
    assert min(map(len, names)) >= 20
    assert sessions.fork(names[0], [1, 5]) is None
    assert all(sessions.fork(name, [1, 5]) is not None for name in names[1:])


def test_a_growing_session_keeps_the_states_that_fit() -> None:
    from chainrule_app.serve.playground_text import Sessions

    sessions, symbols, most = Sessions(most_bytes=1000), [0], 0
    other = sessions.start([0])
    sessions.add(other, 7, torch.zeros(200))
    name = sessions.start(symbols)
    for symbol in range(100):
        sessions.add(name, symbol, torch.zeros(20))  # 80 bytes
        symbols.append(symbol)
        held = [place for place in range(1, len(symbols)) if sessions.fork(name, [*symbols[:place], 9]) is not None]
        most = max(most, len(held))
        assert 80 * len(held) <= 1000
    assert most == 12
    assert sessions.fork(other, [0, 9]) is None
    sessions.add(other, 8, torch.zeros(1))  # forgotten: nothing is kept
    assert sessions.fork(other, [0, 7, 9]) is None


def test_lines_are_read_each_from_its_beginning(client: Any, runs: dict[str, Any]) -> None:
    *tokens, _ = lines(client, "read", run="lines", text="the cat\nthe cat")
    nats = [token["nats"] for token in tokens]
    assert len(nats) == 6
    assert nats[:3] == nats[3:]
    assert abs(sum(nats[:3]) - runs["lines"].score(["the cat"])["nats"][0]) < 1e-4


def test_gates_are_those_of_the_recurrence(client: Any, runs: dict[str, Any]) -> None:
    model, _ = first_part(runs["lstm"].model, None)
    ids = runs["lstm"].task.vocabulary.encode("the cat").tolist()
    found = client.post("/playground/inside", json={"run": "lstm", "symbols": ids, "layer": 1, "unit": 3}).json()
    subject = torch.tensor([[*ids, 0]])
    with torch.no_grad():
        output, _ = model.recurrent(model.inputs(subject, None, None))
    torch.testing.assert_close(torch.tensor(found["values"]["output h"]), output[0, 1:, 3], atol=1e-4, rtol=0)
    assert set(found["values"]) == {"input", "forget", "candidate", "output", "cell", "output h"}


def test_attention_sums_to_one_and_sees_no_future(client: Any, runs: dict[str, Any]) -> None:
    ids = runs["heads"].task.vocabulary.encode("the cat").tolist()
    found = client.post("/playground/inside", json={"run": "heads", "symbols": ids, "layer": 1, "unit": 1}).json()
    assert [len(row) for row in found["weights"]] == list(range(1, 8))
    assert all(abs(sum(row) - 1) < 1e-3 for row in found["weights"])

"""Continuous batching: texts drawn side by side from one `step`; requests join between steps, finished ones leave.

A row is a text with its state, generator and filters, so that it is the same text alone or in a batch. A prompt is read
alone, a chunk between two steps of the others, and its first symbol is drawn at once. The row then joins the batch,
whose state is concatenated and selected as rows come and go.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from secrets import randbelow
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule import AutoregressiveModel, Executor
from chainrule.data import Beginning, Vocabulary
from chainrule.heads import Categorical, head_of
from chainrule.state import State, concatenate, expand, select
from chainrule_app.run import Run
from chainrule_app.serve.guard import Busy, Limits
from chainrule_app.serve.stream import Held, Request, Stream, Token, facts_of
from chainrule_app.tasks.config import check_value
from chainrule_app.tasks.options import Seed
from chainrule_app.tasks.run_directory import VOCABULARY
from chainrule_app.tasks.text.sampling import Decoder, begin_prompt, cover_log_probs, fitting_prompt

_CHUNK = 128  # symbols of a prompt read between two steps
_PROCESSOR = torch.device("cpu")
_PAUSE = 0.05  # seconds between two deliveries: each wakes the thread of the server, and holds up the next step


class _Row:
    """A text that is being drawn."""

    def __init__(self, stream: Stream, vocabulary: Vocabulary, eos: int | None, before: Sequence[int]):
        self.stream, self.request, self.eos = stream, stream.request, eos
        seed = randbelow(1 << 31) if self.request.seed is None else self.request.seed
        self.generator = torch.Generator().manual_seed(seed)
        self.filters = (self.request.temperature, self.request.top_k, self.request.top_p)
        rest = "" if self.request.reports_cover else self.request.rest
        self.held = Held(Decoder(vocabulary, before), self.request.stop, rest, blank=self.request.blank)
        self.left = self.request.max_tokens

    def drawn(self, symbol: int, *facts: Any) -> list[Token]:
        """Return the tokens to deliver after a symbol was drawn; the last has a `finish` if the text has ended."""
        self.left -= 1
        finish = "stop" if symbol == self.eos else None if self.left else "length"
        return self.held.add(symbol, finish, *facts)


class _Reading:
    """A prompt that is being read, for one text or several."""

    def __init__(self, stream: Stream, initial_state: Callable[[int], State], device: torch.device):
        request = stream.request
        self.streams, self.request, self.place = [stream], request, 0
        self.symbols = torch.tensor([list(request.prompt)], dtype=torch.int64, device=device)
        self.state, self.last = request.start, None
        if request.start is None:
            self.state = initial_state(1)
        else:
            self.last, self.place = self.symbols[:, 0], 1

    @property
    def done(self) -> bool:
        return self.place >= self.symbols.shape[1]

    def takes(self, request: Request) -> bool:
        """Return whether a text with the same prompt may join: nothing has been read yet."""
        own = self.request
        fresh = self.place == 0 and request.start is None and own.start is None
        same = (request.prompt, request.rest, request.tail, request.score_prompt)
        return fresh and same == (own.prompt, own.rest, own.tail, own.score_prompt)


class Engine:
    """A worker thread that owns the model of a run of texts, and draws all texts that are asked for side by side."""

    def __init__(self, run: Run, limits: Limits, device: torch.device = _PROCESSOR):
        if run.task.name != "text" or not isinstance(run.model, AutoregressiveModel):
            raise ValueError(f"{run.path}: expected a run of a text that is drawn symbol by symbol")
        self.run, self.limits, self.device = run, limits, device  # symbols are drawn on the processor, as seeds promise
        self.model: AutoregressiveModel = run.model if device == _PROCESSOR else run.task.fixed_model(device)
        self.vocabulary = Vocabulary.load(run.path / VOCABULARY)
        self.eos = self.vocabulary.eos if run.config["data"]["reading"] == "lines" else None
        self.drawn = self.read = 0  # drawn, read: symbols drawn, and symbols of prompts read, since the start
        self._step = (executor := self.model.prepare()).step
        self._inbox, self._readings = deque[Stream](), deque[_Reading]()
        self._rows, self._state, self._last = list[_Row](), None, torch.empty(0, dtype=torch.int64, device=device)
        self._outbox: dict[asyncio.AbstractEventLoop, list[tuple[Stream, Token | Exception]]] = defaultdict(list)
        self._delivered, self._active, self._stopped = 0.0, 0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"chainrule {run.path.name}", daemon=True)
        self._thread.start()
        self.loading = threading.Thread(target=self._load_loops, args=(executor,), name=f"loops of {run.path.name}")
        self.loading.start()

    def _load_loops(self, executor: Executor) -> None:
        """Load compiled loops in the background; not in a daemon thread: exiting during a compilation may crash."""
        step = executor.step_for(None)
        if step != executor.step:
            step(None, self.model.initial_state(1))
            self._step = step

    @property
    def alive(self) -> bool:
        """True if the worker lives."""
        return self._thread.is_alive()

    @property
    def active(self) -> int:
        """Texts that are being drawn or wait."""
        return self._active

    def encode(self, text: str) -> list[int]:
        """Return the symbols of a text."""
        self._check_length(text)
        return self.vocabulary.encode(text).tolist()

    def begin(self, text: str) -> tuple[Beginning, str]:
        """Return a prompt, which may end inside a symbol, and its text, as `chainrule sample --prompt` reads it."""
        self._check_length(text)
        return begin_prompt(self.vocabulary, text)

    def _check_length(self, text: str) -> None:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError("prompt: expected a text, got half of a surrogate pair")
        if len(text) > 16 * self.limits.prompt:
            raise ValueError(f"prompt: expected at most {self.limits.prompt} symbols")

    def decode(self, symbols: Sequence[int]) -> str:
        """Return the text of symbols."""
        return self.vocabulary.decode(list(symbols))

    def token(self, symbol: int) -> str:
        """Return one symbol as text, or its name if it is not valid text alone, such as a byte of a character."""
        text = self.vocabulary.decode([symbol])
        return text if text and "\N{REPLACEMENT CHARACTER}" not in text else self.vocabulary.token(symbol)

    def generate(self, request: Request) -> Stream:
        """Return the tokens of a text as they are drawn; see `submit`."""
        return self.submit([request])[0]

    def submit(self, requests: Sequence[Request]) -> list[Stream]:
        """Streams of several texts, all of them or none; call it in an event loop, and close each."""
        requests = [self._checked(request) for request in requests]
        streams = [Stream(request, self._release) for request in requests]
        with self._changed:
            if self._stopped or self._active + len(streams) > self.limits.rows + self.limits.waiting:
                raise Busy(f"{self._active} texts are being drawn or wait: try again in a moment")
            self._active += len(streams)
            self._inbox += streams
            self._changed.notify()
        return streams

    def _release(self) -> None:
        """Count a stream as closed; its row is freed before the next step."""
        with self._changed:
            self._active -= 1
            self._changed.notify()

    def close(self) -> None:
        """End the worker; streams that are open end with `Busy`."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _checked(self, request: Request) -> Request:
        Categorical.check_filters(request.temperature, request.top_k, request.top_p)
        if not 0 <= request.max_tokens <= self.limits.tokens:
            raise ValueError(f"max_tokens: expected 0 to {self.limits.tokens}, got {request.max_tokens}")
        if not 0 <= request.alternatives <= self.limits.alternatives:
            raise ValueError(f"logprobs: expected 0 to {self.limits.alternatives}, got {request.alternatives}")
        check_value("seed", Seed | None, request.seed)
        if (length := len(request.prompt) + len(request.tail)) > self.limits.prompt:
            raise ValueError(f"prompt: expected at most {self.limits.prompt} symbols, got {length}")
        if request.start is not None and not request.prompt:
            raise ValueError("prompt: expected the symbol in the place of the token whose state is the start, got none")
        prompt = self.vocabulary.check_ids(request.prompt)
        whole = Beginning(prompt, request.rest, request.covers)
        if request.score_prompt or request.start is not None:
            more = max(request.max_tokens, len(request.tail))
            fitting_prompt(self.model, whole, len(prompt) + more)  # raises where positions end before
        else:
            prompt = fitting_prompt(self.model, whole, request.max_tokens)[0].ids
        if not request.max_tokens and not (request.score_prompt and len(prompt)):
            raise ValueError("max_tokens: expected at least 1, or a prompt to score")
        return replace(request, prompt=tuple(prompt.tolist()))

    # What follows runs in the worker.

    def _work(self) -> None:
        torch.set_num_threads(1)  # for a few rows, handing work to other threads costs more than the work
        with torch.no_grad():
            while self._wait():
                self._guarded(self._read, lambda: self._readings.popleft().streams)
                self._guarded(self._advance, self._cleared)
                self._flush()
        for stream in (*self._inbox, *self._cleared(), *(s for reading in self._readings for s in reading.streams)):
            self._send(stream, Busy("the server stops"))
        self._flush(now=True)

    def _wait(self) -> bool:
        """Take what has come; wait where there is nothing to do. False at the end."""
        with self._changed:
            while not (self._stopped or self._inbox or self._rows or self._readings):
                self._flush(now=True)
                self._changed.wait()
            inbox, self._inbox = self._inbox, deque()
            if self._stopped:
                self._inbox = inbox
                return False
        for stream in inbox:
            last = self._readings[-1] if self._readings else None
            if last is not None and len(last.streams) < self.limits.rows and last.takes(stream.request):
                last.streams.append(stream)
            else:
                self._readings.append(_Reading(stream, self.model.initial_state, self.device))
        self._keep([not row.stream.closed for row in self._rows])
        for reading in self._readings:
            reading.streams = [stream for stream in reading.streams if not stream.closed]
        self._readings = deque(reading for reading in self._readings if reading.streams)
        return True

    def _guarded(self, work: Callable[[], None], failed: Callable[[], list[Stream]]) -> None:
        """Do some work; an error ends the texts that it was for, and nothing else."""
        try:
            work()
        except Exception as error:
            for stream in failed():
                self._send(stream, error)

    def _cleared(self) -> list[Stream]:
        streams = [row.stream for row in self._rows]
        self._rows, self._state = [], None
        return streams

    def _read(self) -> None:
        """Read a chunk of the first prompt; at its end draw the first symbol, and let its texts join the others."""
        if not self._readings or len(self._rows) + len(self._readings[0].streams) > self.limits.rows:
            return
        reading = self._readings[0]
        if not reading.done:
            x = reading.symbols[:, reading.place : reading.place + _CHUNK]
            conditionals, reading.state = self.model.unroll(x, reading.state, reading.last)
            if reading.request.score_prompt:
                self._report(reading, x, _categorical(conditionals))
            reading.last, reading.place = x[:, -1], reading.place + x.shape[1]
            self.read += x.shape[1]
        if reading.done:
            if reading.request.tail:
                x = torch.tensor([list(reading.request.tail)], device=self.device)
                self._report(reading, x, _categorical(self.model.unroll(x, reading.state, reading.last)[0]))
            self._join(reading)
            self._readings.popleft()

    def _report(self, reading: _Reading, x: Tensor, conditionals: Categorical) -> None:
        """Deliver symbols of a prompt."""
        most = max(stream.request.alternatives for stream in reading.streams)
        facts = facts_of(x[0].to(_PROCESSOR), conditionals.logits[0], most)
        ends = reading.place + len(facts) >= reading.symbols.shape[1]
        for stream in reading.streams:
            decoder, request = Decoder(self.vocabulary, reading.request.prompt[: reading.place]), stream.request
            for index, (symbol, log_prob, others) in enumerate(facts, 1):
                last = ends and index == len(facts)
                text = decoder.add(symbol) + (decoder.rest() if last else "")
                if symbol == self.vocabulary.unknown and request.tail:  # the beginning of a word, as it was written
                    text = text.replace(Vocabulary.UNKNOWN, request.rest)
                finish = "length" if last and not request.max_tokens else None
                alternatives = others[: request.alternatives]
                self._send(stream, Token(symbol, text, log_prob, alternatives, drawn=False, finish=finish))

    def _join(self, reading: _Reading) -> None:
        streams = [stream for stream in reading.streams if stream.request.max_tokens]
        if not streams:
            return
        rows = [_Row(stream, self.vocabulary, self.eos, reading.request.prompt) for stream in streams]
        if reading.request.covers:
            state, last, going = self._cover(reading, rows)
        else:
            conditional, state = self._step(reading.last, reading.state)
            state = expand(state, len(rows))
            last, going = self._draw(rows, _categorical(conditional).expand([len(rows)]), state)
        if not any(going):
            return
        places = self._places(going)
        joined = select(state, places)
        self._state = concatenate([self._state, joined]) if self._rows else joined
        self._last = torch.cat([self._last, last[places]]) if self._rows else last[places]
        self._delivered = 0.0  # a first symbol is not kept waiting
        self._rows += [row for row, goes in zip(rows, going, strict=True) if goes]

    def _cover(self, reading: _Reading, rows: list[_Row]) -> tuple[State, Tensor, list[bool]]:
        """Draw the symbols that complete the end of a prompt; see `_draw`.

        All but the last of them are the prompt's, and reported where a request wants that; else one token stands for
        them all.
        """
        request, states, last, going = reading.request, list[State](), list[int](), list[bool]()
        prompt = Beginning(np.array(request.prompt, np.int64), request.rest, request.covers)
        scores = cover_log_probs(self.model, prompt, (reading.state, reading.last))
        joint = scores.log_softmax(0)
        for row in rows:
            index = int(Categorical(logits=scores).filtered(*row.filters).sample(generator=row.generator))
            cover = torch.tensor([request.covers[index]], device=self.device)
            conditionals, state = self.model.unroll(cover, reading.state, reading.last)
            facts = facts_of(cover[0].to(_PROCESSOR), _categorical(conditionals).logits[0], row.request.alternatives)
            for symbol, log_prob, others in facts[:-1]:
                text = row.held.pass_over(symbol)
                if request.reports_cover:
                    self._send(row.stream, Token(symbol, text, log_prob, others, drawn=False))
            symbol, log_prob, others = facts[-1]
            if not request.reports_cover:
                log_prob, others = float(joint[index]), ()
            own = state if row.request.keep_states else None
            going.append(self._send_drawn(row, symbol, log_prob, others, own))
            states.append(state)
            last.append(symbol)
        self.drawn += len(rows)
        return concatenate(states), torch.tensor(last, device=self.device), going

    def _advance(self) -> None:
        """Draw the next symbol of all rows."""
        if not self._rows:
            return
        conditional, self._state = self._step(self._last, self._state)
        self._last, going = self._draw(self._rows, _categorical(conditional), self._state)
        self._keep(going)

    def _keep(self, going: list[bool]) -> None:
        """Let rows leave the batch."""
        if all(going):
            return
        self._rows = [row for row, goes in zip(self._rows, going, strict=True) if goes]
        places = self._places(going)
        self._state = select(self._state, places) if self._rows else None
        self._last = self._last[places]

    def _draw(self, rows: list[_Row], scores: Categorical, state: State) -> tuple[Tensor, list[bool]]:
        """Draw a symbol for each row and deliver it: the symbols (B,), and which rows go on."""
        groups = defaultdict[Any, list[int]](list)
        for index, row in enumerate(rows):
            groups[row.filters].append(index)
        drawn = torch.empty(len(rows), dtype=torch.int64)
        for filters, places in groups.items():
            part = scores if len(groups) == 1 else Categorical(scores.parameters[0][places])
            drawn[places] = part.filtered(*filters).sample_rows([rows[index].generator for index in places])
        facts = facts_of(drawn, scores.logits, max(row.request.alternatives for row in rows))
        going = []
        for index, (row, (symbol, log_prob, others)) in enumerate(zip(rows, facts, strict=True)):
            own = select(state, torch.tensor([index], device=self.device)) if row.request.keep_states else None
            going.append(self._send_drawn(row, symbol, log_prob, others[: row.request.alternatives], own))
        self.drawn += len(rows)
        return drawn.to(self.device), going

    def _places(self, going: list[bool]) -> Tensor:
        return torch.tensor(going).nonzero().squeeze(1).to(self.device)

    def _send_drawn(self, row: _Row, symbol: int, log_prob: float, others: Any, state: State) -> bool:
        """Deliver a symbol that was drawn for a row; return whether the row goes on."""
        tokens = row.drawn(symbol, log_prob, others, state)
        for token in tokens:
            self._send(row.stream, token)
        return not (tokens and tokens[-1].finish)

    def _send(self, stream: Stream, token: Token | Exception) -> None:
        self._outbox[stream.loop].append((stream, token))
        if isinstance(token, Exception) or token.finish:
            self._delivered = 0.0  # at once

    def _flush(self, *, now: bool = False) -> None:
        """Deliver what was sent, unless that was done a moment ago."""
        if not self._outbox or not (now or monotonic() - self._delivered > _PAUSE):
            return
        for loop, tokens in self._outbox.items():
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_deliver, tokens)
        self._outbox = defaultdict(list)
        self._delivered = monotonic()


def _deliver(tokens: list[tuple[Stream, Token | Exception]]) -> None:
    for stream, token in tokens:
        stream.deliver(token)


def _categorical(conditional: Any) -> Categorical:
    """Return the conditionals of symbols, on the processor."""
    categorical = head_of(conditional).categorical()
    assert categorical is not None  # of symbols
    scores = categorical.parameters[0]
    return categorical if scores.device == _PROCESSOR else Categorical(scores.to(_PROCESSOR))

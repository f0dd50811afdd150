"""Time the server on a run: first token, eight streams against one and against a batched sample, and its memory.

    python benchmarks/speed_serve.py [RUN] [--requests 1000] [--tokens 400] [--repeats 3]

Without RUN, a text model of the default sizes is trained for ten steps. The server is a process of its own, and
streams come over real sockets. Each figure is the best of the repeats, taken in turn, so that a slow moment of the
machine meets all of them. Where other work shares the processors, compare seconds of processor time: on a machine with
an idle core for each, the threads of the server still take turns.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from os import sysconf
from pathlib import Path
from time import perf_counter, process_time

import httpx

import chainrule

PROMPT = "The "
STREAMS = 8


async def streamed(client: httpx.AsyncClient, name: str, tokens: int, seed: int) -> float:
    """Draw a text as a stream; returns the seconds until its first token."""
    body = {"model": name, "prompt": PROMPT, "max_tokens": tokens, "seed": seed, "stream": True}
    began, first = perf_counter(), 0.0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line and not first:
                first = perf_counter() - began
    return first


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """How long some work takes."""
    began = perf_counter()
    await work()
    return perf_counter() - began


def resident(process: int) -> float:
    """Resident memory of a process, MB."""
    (line,) = (line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1e3


def processor_seconds(process: int) -> float:
    """Processor time that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / sysconf("SC_CLK_TCK")


async def measured(url: str, process: int, run: chainrule.Run, asked: argparse.Namespace) -> None:
    """Print the figures."""
    name, tokens = run.path.name, asked.tokens
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        await asyncio.gather(*(streamed(client, name, 20, seed) for seed in range(STREAMS)))  # what is done once
        run.sample(STREAMS, prompt=PROMPT, length=20)
        first, single, together, batched, serving, sampling = ([], [], [], [], [], [])  # type: tuple[list[float], ...]
        for _ in range(asked.repeats):
            first.append(await streamed(client, name, 1, 0))
            single.append(await seconds(lambda: streamed(client, name, tokens, 0)))
            many = [streamed(client, name, tokens, seed) for seed in range(STREAMS)]
            began = processor_seconds(process)
            together.append(await seconds(lambda many=many: asyncio.gather(*many)))
            serving.append(processor_seconds(process) - began)
            began, had = perf_counter(), process_time()
            run.sample(STREAMS, prompt=PROMPT, length=tokens, seed=0)
            batched.append(perf_counter() - began)
            sampling.append(process_time() - had)
        one, eight, sampled = tokens / min(single), STREAMS * tokens / min(together), STREAMS * tokens / min(batched)
        print(f"first token        {1e3 * min(first):8.1f} ms")
        print(f"one stream         {one:8,.0f} symbols/s")
        print(f"{STREAMS} streams          {eight:8,.0f} symbols/s, {eight / one:.2f} of one")
        print(f"run.sample({STREAMS})      {sampled:8,.0f} symbols/s, of which the streams have {eight / sampled:.2f}")
        shares = sorted(sampled / served for sampled, served in zip(sampling, serving, strict=True))
        print(f"processor time     {shares[len(shares) // 2]:8.2f} of the server's is what run.sample takes (median)")
        for _ in range(100):
            await streamed(client, name, 8, 0)
        before = resident(process)
        for number in range(asked.requests):
            await streamed(client, name, 8, number)
        after = resident(process)
        print(f"memory             {before:8.1f} MB, {after / before - 1:+.1%} after {asked.requests:,} requests")


def main() -> None:
    """Start the server, measure it, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="of a text")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    run = chainrule.load(asked.run) if asked.run else chainrule.fit(steps=10)
    command = [sys.executable, "-m", "chainrule", "serve", str(run.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().partition("): ")[2].partition("#")[0]
            asyncio.run(measured(url, server.pid, run, asked))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

"""Load on the server: rows of a table that eight clients score one by one, and 64 completions streamed at once.

    python benchmarks/serve_load.py [--seconds 10] [--clients 8] [--streams 64] [--tokens 200]

Runs of a table of ten columns (twenty steps) and of a text (an LSTM of 256 units, ten steps) are trained, and a server
is started in a process of its own. Each client sends a row, waits for its scores, and sends the next. Printed
are rows a second with the median and the 99th percentile of their milliseconds, and for the streams the slowest one's
seconds divided by the fastest one's, and the longest pause of any. The goals are 200 rows a second with a median of
20 ms on two cores, and no stream that starves. Where other work shares the processors, the server's processor time per
row tells what it would do alone.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
from os import sysconf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import httpx
import polars
from speed_workers import rows

import chainrule


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / sysconf("SC_CLK_TCK")


async def scored(client: httpx.AsyncClient, data: list[dict[str, object]], seconds: float, times: list[float]) -> None:
    """Score one row after another."""
    end, number = perf_counter() + seconds, 0
    while (began := perf_counter()) < end:
        answer = await client.post("/runs/table/score", json={"data": [data[number % len(data)]]})
        answer.raise_for_status()
        times.append(perf_counter() - began)
        number += 1


async def streamed(client: httpx.AsyncClient, tokens: int, seed: int) -> tuple[float, float]:
    """Draw a text; return its seconds and the longest pause."""
    began = last = perf_counter()
    pause = 0.0
    body = {"model": "text", "prompt": "1", "max_tokens": tokens, "seed": seed, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line:
                pause, last = max(pause, perf_counter() - last), perf_counter()
    return last - began, pause


async def measured(url: str, server: int, data: list[dict[str, object]], options: argparse.Namespace) -> None:
    """Print the figures."""
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:  # one: to make one takes 20 ms
        await told(client, server, data, options)


async def told(
    client: httpx.AsyncClient, server: int, data: list[dict[str, object]], options: argparse.Namespace
) -> None:
    """Print the figures of a client with many connections."""
    await asyncio.gather(*(streamed(client, 20, seed) for seed in range(options.streams)))
    found = await asyncio.gather(*(streamed(client, options.tokens, seed) for seed in range(options.streams)))
    ends = [end for end, _ in found]
    print(
        f"{options.streams} streams of {options.tokens} symbols: {options.streams * options.tokens / max(ends):,.0f} "
        f"symbols a second, slowest / fastest {max(ends) / min(ends):.2f}, "
        f"longest pause {max(pause for _, pause in found):.2f} s",
        flush=True,
    )
    clients = [httpx.AsyncClient(base_url=client.base_url, timeout=60) for _ in range(options.clients)]
    await scored(clients[0], data, 1.0, [])
    times: list[float] = []
    began, had = perf_counter(), processor_seconds(server)
    await asyncio.gather(*(scored(one, data, options.seconds, times) for one in clients))
    seconds, used = perf_counter() - began, processor_seconds(server) - had
    milliseconds = [1e3 * time for time in sorted(times)]
    print(
        f"{options.clients} clients: {len(times) / seconds:.0f} rows a second, median "
        f"{statistics.median(milliseconds):.1f} ms, 99% {milliseconds[int(0.99 * len(times))]:.1f} ms; "
        f"{1e3 * used / len(times):.2f} ms of processor time a row, {used / seconds:.2f} processors busy",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        data = polars.read_csv("".join(rows(5000)).encode())
        chainrule.fit(data, out=f"{folder}/table", hidden_size=256, num_members=1, steps=20)
        text = Path(folder) / "text.txt"
        text.write_text("".join(rows(5000)))
        chainrule.fit(text, task="text", reading="stream", out=f"{folder}/text", hidden_size=256, plain=True, steps=10)
        command = [sys.executable, "-m", "chainrule", "serve", f"{folder}/table", f"{folder}/text", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                url = server.stdout.readline().partition("): ")[2].partition("#")[0]
                asyncio.run(measured(url, server.pid, data.head(500).to_dicts(), options))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

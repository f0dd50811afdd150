"""`chainrule serve`: its lines, its errors, and its end."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch

from chainrule_app.cli.main import main
from chainrule_app.serve import server as _server


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        return json.load(answer)


def test_a_line_for_each_run_and_an_end_in_good_order(runs, server):
    with server(runs("default").path, runs("words").path) as (process, lines):
        assert [re.sub(r":\d+/", ":PORT/", line) for line in lines] == [
            "default (text, lstm): http://127.0.0.1:PORT/#default\n",
            "words (text, lstm): http://127.0.0.1:PORT/#words\n",
            "Ctrl-C stops the server.\n",
        ]
        url = lines[0].split()[-1].partition("#")[0]
        assert [run["name"] for run in get(f"{url}runs")["runs"]] == ["default", "words"]
        body = {"model": "default", "prompt": "the", "max_tokens": 16_000, "stream": True}
        asked = urllib.request.Request(
            f"{url}v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=20) as stream:
            assert stream.readline().startswith(b"data: ")
            process.send_signal(signal.SIGINT)
            events = [line for line in stream.read().decode().splitlines() if line]
        assert "the server stops" in events[-2]  # a stream is told, not cut
        assert events[-1] == "data: [DONE]"
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (0, "Stopped.\n", "loading default, words …\n")


@pytest.mark.slow
def test_sigterm_ends_the_server_too_and_tokens_are_told(runs, server):
    with server(runs("default").path, "--token", "a b") as (process, lines):
        assert re.fullmatch(r"The page asks for the token; with it: http://127\.0\.0\.1:\d+/#token=a%20b\n", lines[1])
        url = lines[0].split()[-1].partition("#")[0]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{url}runs")
        assert get(f"{url}runs", Authorization="Bearer a b")["runs"]
        process.terminate()
        assert process.wait(timeout=120) == 0


LOADING = """
import sys, time
from chainrule_app.cli.main import main
from chainrule_app.serve.engine import Engine
Engine._load_loops = lambda *about: time.sleep(3600)
main(["serve", *sys.argv[1:], "--port", "0"])
"""


def test_a_server_that_still_loads_its_loops_ends_when_it_is_told(runs):
    """Compiled for the first time, loops took longer than the 40 seconds that a container had to end."""
    command = [sys.executable, "-c", LOADING, str(runs("default").path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            while not process.stdout.readline().startswith("Ctrl-C"):
                assert process.poll() is None
            process.terminate()
            assert process.wait(timeout=300) == 0
            assert process.stdout.read() == "Stopped.\n"
        finally:
            process.kill()


def test_mistakes_are_one_line(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    run = runs("default").path
    (tmp_path / "default").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases = [
            ([run, "--port", port], f"127.0.0.1:{port}: address already in use: take another --port"),
            ([run, "--host", "192.0.2.1"], "192.0.2.1:8000: cannot assign requested address: take another --port"),
            ([run, "--host", "no.such.invalid"], "no.such.invalid:8000: "),
            ([tmp_path / "none"], "none"),
            ([tmp_path / "default"], "default"),
            ([], "at least one run"),
            ([run, run], "another run is called default"),
            ([run, "--port", 70000], "--port: expected a whole number from 0 to 65535"),
            ([run, "--device", "gpu"], "--device: expected auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
            ([run, "--device", "cuda"], "--device: no CUDA device is available, got cuda: use device cpu"),
            ([run, "--device", "mps"], "--device: torch finds no Apple GPU on this machine: use device cpu"),
            ([run, "--token", ""], "--token: expected"),
            ([run, "--token", "é"], "--token: expected"),
        ]
        capsys.readouterr()
        for arguments, message in cases:
            assert main(["serve", *map(str, arguments)]) == 2
            line = capsys.readouterr().err
            assert line.startswith("chainrule: ")
            assert message in line
            assert line.count("\n") == 1


def test_the_browser_opens_and_others_are_warned_of(runs, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(_server.webbrowser, "open", opened.append)
    monkeypatch.setattr(_server._Server, "run", lambda self, sockets: self.config.app.state.server.close())
    run = str(runs("default").path)
    assert main(["serve", run, "--port", "0", "--host", "0.0.0.0", "--open"]) == 0
    out = capsys.readouterr().out
    assert "--token SECRET keeps others out" in out
    assert opened == [re.search(r"http://127\.0\.0\.1:\d+/", out)[0]]
    assert main(["serve", run, "--port", "0", "--host", "localhost", "--token", "secret", "--open"]) == 0
    out = capsys.readouterr().out
    assert "SECRET" not in out
    assert opened[1:] == [re.search(r"http://localhost:\d+/#token=secret", out)[0]]


def test_the_package_holds_the_page_of_the_server():
    assert (Path(_server.__file__).parent / "static").is_dir()

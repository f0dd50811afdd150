"""Data behind http://, on a server of this machine: with ranges or without, broken connections, and refusals."""

import os
import re
import socket
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from chainrule_app.cli.main import main
from chainrule_app.readers import copies, remote

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]  # of the client's packages
CONTENT = os.urandom(3500)


class Files(BaseHTTPRequestHandler):
    """Answers with one content: whole or in ranges, broken off in the middle as often as `cuts` says, or a status."""

    def log_message(self, *about):
        pass

    def do_HEAD(self):
        self._answer(with_content=False)

    def do_GET(self):
        self._answer(with_content=True)

    def _answer(self, *, with_content):
        server, status, content = self.server, 200, CONTENT
        if server.status is not None:
            self.send_error(server.status)
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if server.ranges and asked:
            status, content = 206, CONTENT[int(asked[1]) : int(asked[2]) + 1]
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        if server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if not with_content:
            return
        server.starts.append(int(asked[1]) if status == 206 else None)
        if server.cuts and (not server.ranges or len(server.starts) > 2):
            server.cuts -= 1
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(content)


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """A context of a server; gives the server."""
    pytest.importorskip("aiohttp", reason="needs pip install aiohttp")
    monkeypatch.setenv(copies.CACHE, str(tmp_path / "copies"))
    monkeypatch.setattr(remote, "_FRESH", 0.0)
    monkeypatch.setattr(remote, "_PAUSE", 0.0)
    monkeypatch.setattr(remote, "_RANGE", 1000)

    @contextmanager
    def context(*, ranges=True, cuts=0, status=None):
        with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
            server.ranges, server.cuts, server.status, server.starts = ranges, cuts, status, []
            server.url = f"http://127.0.0.1:{server.server_port}/d/x.bin"
            Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            yield server
            server.shutdown()

    return context


def test_only_the_range_that_broke_is_asked_for_again(serving):
    with serving(cuts=1) as server:
        assert Path(remote.local_paths(server.url)[0]).read_bytes() == CONTENT
        assert server.starts == [3499, 0, 1000, 1000, 2000, 3000]  # first, whether it gives ranges
        remote.local_paths(server.url)
        assert len(server.starts) == 6  # the copy is current


def test_without_ranges_the_whole_object_is_asked_for_again(serving):
    with serving(ranges=False, cuts=2) as server:
        assert Path(remote.local_paths(server.url)[0]).read_bytes() == CONTENT
        assert set(server.starts) == {None}
        assert server.cuts == 0


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (404, "x.csv: no such object or folder"),
        (403, "x.csv: the storage refuses: set credentials"),
        (401, "x.csv: the storage refuses: set credentials"),
        (500, "x.csv: the storage does not answer (ClientResponseError: 500"),
        (None, "x.csv: the storage does not answer (ClientConnector"),  # nobody listens
    ],
)
def test_what_the_web_refuses_is_one_line_without_the_signature(serving, status, line, capsys):
    with serving(status=status) as server:
        url = server.url.replace("x.bin", "x.csv?X-Amz-Signature=secret")
        if status is not None:
            assert main(["train", url]) == 2
    if status is None:
        assert main(["train", url]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert "secret" not in said


def test_rows_behind_a_signed_address_are_read_and_the_signature_is_not_kept(serving, tmp_path, monkeypatch, capsys):
    rows = b"age,smokes\n" + b"".join(b"%d,%s\n" % (20 + row % 40, b"yes" if row % 2 else b"no") for row in range(60))
    monkeypatch.setattr(sys.modules[__name__], "CONTENT", rows)
    with serving() as server:
        url = server.url.replace("x.bin", "x.csv?X-Amz-Signature=secret")
        call = ["train", url, "--steps", "1", "--hidden-size", "8", "--plain", "--out", str(tmp_path / "run")]
        assert main(call) == 0
    said = capsys.readouterr()
    assert "secret" not in said.out + said.err
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in kept if "secret" in str(path) or b"secret" in path.read_bytes()]

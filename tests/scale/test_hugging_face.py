"""Data behind hf://, on a server of this machine that answers as the hub does."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from chainrule_app.readers import copies

pytestmark = pytest.mark.scale
ROWS = b"age,smokes\n" + b"31,yes\n45,no\n" * 30
COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """One data set, user/name, with the file rows.csv."""

    def do_GET(self):
        if "/resolve/" in self.path:
            begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            part = ROWS[begin : end + 1]
            headers = {"ETag": '"a"', "Content-Range": f"bytes {begin}-{begin + len(part) - 1}/{len(ROWS)}"}
            self._answer(206, part, **headers)
        elif "/tree/" in self.path:
            self._answer(
                200, json.dumps([{"type": "file", "path": "rows.csv", "size": len(ROWS), "oid": "a"}]).encode()
            )
        elif self.path.startswith("/api/datasets/user/name"):
            self._answer(200, json.dumps({"id": "user/name", "sha": COMMIT, "private": False}).encode())
        else:
            self._answer(404, b"{}", **{"X-Error-Code": "RepoNotFound"})

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


TRAIN = """
import sys
from chainrule_app.cli.main import main
for number, name in enumerate(["name/rows.csv", "name/*.csv", "name/none.csv", "other/rows.csv"]):
    quick = ["--steps", "1", "--hidden-size", "8", "--plain", "--out", f"{sys.argv[1]}/{number}"]
    print(main(["train", f"hf://datasets/user/{name}", *quick]), file=sys.stderr)
"""


def test_a_data_set_of_the_hub_is_trained_on_by_its_url(tmp_path):
    pytest.importorskip("huggingface_hub")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", copies.CACHE: str(tmp_path / "copies")}
    command = [sys.executable, "-c", TRAIN, str(tmp_path)]  # the address of the hub is read with its package
    environment = os.environ | own | {"HF_HUB_OFFLINE": "0"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr.splitlines()
    server.shutdown()
    server.server_close()
    assert [line for line in said if line in "02"] == ["0", "0", "2", "2"]
    for url in ("hf://datasets/user/name/none.csv", "hf://datasets/user/other/rows.csv"):
        assert f"chainrule: {url}: no such object or folder" in said
    weights = [(tmp_path / number / "model.safetensors").read_bytes() for number in "01"]
    assert weights[0] == weights[1]

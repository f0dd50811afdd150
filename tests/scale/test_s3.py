"""Data and runs behind s3://, on a real server of this machine, with connections that break in the middle."""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

import chainrule
from chainrule_app.cli.main import main
from chainrule_app.readers import copies, remote

pytestmark = [
    pytest.mark.scale,
    pytest.mark.skipif(not (find_spec("s3fs") and find_spec("moto")), reason="needs pip install s3fs moto[server]"),
    pytest.mark.filterwarnings("ignore"),  # of the server's packages
]


class CuttingProxy(threading.Thread):
    """Passes connections on to a server, and cuts an answer after some bytes, as often as `cuts` says."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self._server, self.cuts, self.after = port, 0, 100_000
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def run(self):
        while True:
            client, _ = self._listening.accept()
            server = socket.create_connection(("127.0.0.1", self._server))
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, target, answers):
        passed = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                passed += len(data)
                if answers and self.cuts and passed > self.after:
                    self.cuts -= 1
                    target.sendall(data[:100])
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def proxy():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = CuttingProxy(server.get_host_and_port()[1])
    proxy.start()
    yield proxy
    server.stop()


@pytest.fixture
def bucket(proxy, tmp_path, monkeypatch):
    """An empty bucket, credentials in the environment, and a folder for copies."""
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "known")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-key")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv(copies.CACHE, str(tmp_path / "copies"))
    monkeypatch.setattr(remote, "_FRESH", 0.0)
    s3fs.S3FileSystem.clear_instance_cache()
    storage = s3fs.S3FileSystem()
    if storage.exists("bucket"):
        storage.rm("bucket", recursive=True)
    storage.mkdir("bucket")
    return storage


ROWS = b"age,smokes\n" + b"".join(b"%d,%s\n" % (20 + row % 40, b"yes" if row % 2 else b"no") for row in range(60))


def test_an_object_arrives_whole_through_connections_that_break(bucket, proxy, monkeypatch):
    monkeypatch.setattr(remote, "_RANGE", 1 << 20)
    monkeypatch.setattr(remote, "_PAUSE", 0.01)
    content = os.urandom(5_000_000)
    bucket.pipe("bucket/d/x.bin", content)
    proxy.cuts = 4
    assert Path(remote.local_paths("s3://bucket/d/x.bin")[0]).read_bytes() == content
    assert proxy.cuts == 0
    bucket.pipe("bucket/d/x.bin", content[::-1])
    assert Path(remote.local_paths("s3://bucket/d/*.bin")[0]).read_bytes() == content[::-1]


def test_a_run_trains_from_and_to_s3(bucket, capsys):
    bucket.pipe("bucket/rows/a.csv", ROWS)
    bucket.pipe("bucket/rows/b.csv", ROWS)
    quick = ["--hidden-size", "8", "--plain"]
    data, run = "s3://bucket/rows/*.csv", "s3://bucket/runs/people"
    assert main(["train", data, "--steps", "2", "--out", run, *quick]) == 0
    assert main(["train", data, "--continue", "--steps", "4", "--out", run]) == 0
    assert main(["score", run, "s3://bucket/rows/a.csv"]) == 0
    assert main(["fill", "s3://bucket/runs/none", "s3://bucket/rows/a.csv"]) == 2
    said = capsys.readouterr()
    assert "s3://bucket/runs/none: no such run" in said.err
    assert "hidden-key" not in said.out + said.err
    stored = {name: bucket.cat(name) for name in bucket.find("bucket/runs/people")}
    assert json.loads(stored["bucket/runs/people/config.json"])["data"]["sources"]["source"] == data
    assert not any(b"hidden-key" in content or b"/copies/" in content for content in stored.values())


def test_processes_of_ray_train_a_divided_model_to_s3(bucket, tmp_path, capsys):
    pytest.importorskip("ray", reason="Ray is not installed: pip install .[scale]")
    bucket.pipe("bucket/fish.txt", b"one fish two fish red fish blue fish\n" * 100)
    train = [
        "train", "s3://bucket/fish.txt", "--plain", "--hidden-size", "8", "--threads", "1", "--batch-size", "6",
        "--precision", "float32",
    ]  # fmt: skip
    ray = [*train, "--out", "s3://bucket/several", "--engine", "ray", "--workers", "2", "--shard"]
    command = [sys.executable, "-m", "chainrule", *ray, "--steps", "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "run:  s3://bucket/several\n" in done.stdout
    assert "credentials" not in done.stderr
    assert "divided among 2 processes" in done.stderr
    assert main([*train, "--steps", "5", "--out", str(tmp_path / "one")]) == 0
    runs = map(chainrule.load, ("s3://bucket/several", tmp_path / "one"))
    several, one = (run.score("s3://bucket/fish.txt").summary["nats"] for run in runs)
    assert several == pytest.approx(one, rel=1e-3)
    capsys.readouterr()
    assert main([*ray, "--steps", "9"]) == 2
    assert capsys.readouterr().err.startswith("chainrule: --out: s3://bucket/several holds a run already: continue it")


def test_files_of_options_are_read_from_and_written_to_s3(bucket, tmp_path, capsys):
    bucket.pipe("bucket/rows.csv", ROWS)
    quick = ["--steps", "1", "--hidden-size", "8", "--plain"]
    assert main(["train", "s3://bucket/rows.csv", "--out", str(tmp_path / "run"), *quick]) == 0
    run = str(tmp_path / "run")
    for name in ("x.csv", "x.parquet"):
        assert main(["score", run, "s3://bucket/rows.csv", "--out", str(tmp_path / name)]) == 0
        assert main(["score", run, "s3://bucket/rows.csv", "--out", f"s3://bucket/made/{name}"]) == 0
        assert bucket.cat(f"bucket/made/{name}") == (tmp_path / name).read_bytes()
    assert f"s3://bucket/made/{name}: 60 rows" in capsys.readouterr().err
    bad = ROWS + b"x,maybe\n"
    bucket.pipe("bucket/bad.csv", bad)
    assert main(["score", run, "s3://bucket/bad.csv", "--out", "s3://bucket/made/x.csv"]) == 2
    assert bucket.cat("bucket/made/x.csv") == (tmp_path / "x.csv").read_bytes()
    assert main(["score", run, "s3://bucket/rows.csv", "--out", "s3://nowhere/x.csv"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("chainrule: s3://nowhere/x.csv: ")
    assert "what was written is in" in said[-1]


def test_what_is_refused_is_one_line(bucket, capsys, monkeypatch):
    for source in ("s3://bucket/none.csv", "s3://nowhere/rows.csv"):
        assert main(["train", source]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    type(bucket).clear_instance_cache()
    bucket.pipe("bucket/a.csv", ROWS)
    assert main(["train", "s3://bucket/a.csv"]) == 2
    assert "s3://bucket/a.csv: the storage refuses: set credentials" in capsys.readouterr().err

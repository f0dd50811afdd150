"""Runs the steps of deploy/Dockerfile in an empty folder, and serves as deploy/kubernetes.yaml asks.

    python deploy/check.py

Where a Docker daemon answers, the image is built too. The steps are those of the Dockerfile: COPY, RUN pip, ENTRYPOINT.
Its base image is this Python, and there is no user of its own. The server gets the arguments, the token and the probes
of kubernetes.yaml, a run that it may not change, and SIGTERM at the end.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent
TOKEN = "secret"
SKIPPED = ("FROM", "WORKDIR", "USER", "VOLUME", "EXPOSE")
START = 300.0  # seconds until the server takes requests


def steps(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    lines = [line for line in dockerfile.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#"]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def build(folder: Path, environment: dict[str, str]) -> tuple[list[str], str]:
    """Run the steps of the Dockerfile in a folder; return its command and the signal that stops it."""
    command, stop = list[str](), "SIGTERM"
    for name, rest in steps((HERE / "Dockerfile").read_text()):
        if name == "COPY":
            *sources, target = shlex.split(rest)
            for source in sources:
                place = folder / target / (source if target == "./" else "")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / source, place)
        elif name == "RUN" and rest.startswith("pip "):
            print(f"$ {rest}", flush=True)
            subprocess.run(["bash", "-euc", rest], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        elif name == "RUN":
            print(f"skipped: {rest}")
        elif name == "ENTRYPOINT":
            command = json.loads(rest)
        elif name == "STOPSIGNAL":
            stop = rest
        elif name not in (*SKIPPED, "CMD"):
            raise SystemExit(f"deploy/Dockerfile: this script does not know {name}")
    return command, stop


def container() -> tuple[dict, float]:
    """Return the container of the deployment, and the seconds that it has to end."""
    deployment = next(
        part for part in yaml.safe_load_all((HERE / "kubernetes.yaml").read_text()) if "replicas" in part["spec"]
    )
    pod = deployment["spec"]["template"]["spec"]
    (one,) = pod["containers"]
    return one, float(pod["terminationGracePeriodSeconds"])


def status(url: str, body: dict | None = None, token: str = "") -> int:
    """Return the status of a request; 0 where nobody answers."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(Request(url, body and json.dumps(body).encode(), headers), timeout=60) as answer:
            answer.read()
            return answer.status
    except HTTPError as error:
        return error.code
    except (URLError, ConnectionError):
        return 0


def digest(folder: Path) -> str:
    """Return a digest of the files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


def serve(command: list[str], stop: str, folder: Path, environment: dict[str, str]) -> None:
    """Serve the run in a folder with the arguments of the container, ask it, and stop it."""
    one, grace = container()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(port) if before == "--port" else word for before, word in zip(["", *command], command, strict=False)]
    run = folder / "runs" / "model"
    arguments = [str(run) if word == "/runs/model" else word for word in one["args"]]
    assert str(run) in arguments
    assert float(arguments[arguments.index("--drain") + 1]) < grace
    assert one["env"][0]["name"] == "CHAINRULE_TOKEN"
    before = digest(run)
    print(f"$ {shlex.join([*command, *arguments])}", flush=True)
    environment = environment | {"CHAINRULE_TOKEN": TOKEN}
    with subprocess.Popen(
        [*command, *arguments], cwd=folder / "empty", env=environment, stdout=subprocess.DEVNULL
    ) as server:
        try:
            url, end = f"http://127.0.0.1:{port}", monotonic() + START
            while status(url + one["readinessProbe"]["httpGet"]["path"]) != 200:
                if server.poll() is not None or monotonic() > end:
                    raise SystemExit(f"the server is not ready: status {server.poll()}")
                sleep(0.2)
            asked = {"prompt": "The ", "max_tokens": 5, "seed": 1}
            found = {
                "liveness": status(url + one["livenessProbe"]["httpGet"]["path"]),
                "without the token": status(f"{url}/v1/completions", asked),
                "with the token": status(f"{url}/v1/completions", asked, TOKEN),
            }
            began = monotonic()
            server.send_signal(signal.Signals[stop])
            found["exit"] = server.wait(grace)
            print(found, f"ended after {monotonic() - began:.1f} s")
        finally:
            server.kill()
    assert found == {"liveness": 200, "without the token": 401, "with the token": 200, "exit": 0}
    assert digest(run) == before, "the server changed the run, which kubernetes.yaml mounts for reading"


def main() -> None:
    if shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        subprocess.run(["docker", "build", "-f", "deploy/Dockerfile", "-t", "chainrule", "."], cwd=ROOT, check=True)
    with TemporaryDirectory(prefix="chainrule-deploy-") as name:
        folder = Path(name).resolve()
        subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)
        path = f"{folder / 'environment' / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
        home = {"PATH": path, "HOME": str(folder / "home")}
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        pip = ours | {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}  # mirrors are ours
        for part in ("application", "empty", "home"):
            (folder / part).mkdir()
        command, stop = build(folder / "application", pip)
        shutil.rmtree(folder / "application")  # what runs is what was installed
        command[0] = shutil.which(command[0], path=path) or command[0]
        out = folder / "runs" / "model"
        train = ["train", ROOT / "README.md", "--steps=2", "--hidden-size=8", "--plain", f"--out={out}"]
        subprocess.run([command[0], *train], cwd=folder / "empty", env=home, check=True, capture_output=True)
        serve(command, stop, folder, home)


if __name__ == "__main__":
    main()

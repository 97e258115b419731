"""The commands of docs/Dockerfile, run in order in a folder with an environment of its own; no container is needed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request

import pytest


@pytest.fixture(scope="module")
def instructions(root):
    """Pairs of an instruction and its arguments, in order."""
    text = (root / "docs" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


@pytest.mark.slow(minutes=3)
def test_the_commands_of_the_image_make_a_server(instructions, root, start, tmp_path, trained):
    folder, environment, server = tmp_path, dict(os.environ), []
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    environment["PATH"] = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    for name, rest in instructions:
        if name == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif name == "WORKDIR":
            folder = tmp_path / "image" / rest.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy = shutil.copytree if (root / source).is_dir() else shutil.copy
                copy(root / source, folder / target)
        elif name == "RUN" and not rest.startswith("useradd"):  # It would add a user to this machine.
            ran = subprocess.run(["bash", "-ec", rest], cwd=folder, env=environment, capture_output=True, text=True)
            if ran.returncode and "connection" in ran.stderr.lower():
                pytest.skip("no package registry is reached")
            assert ran.returncode == 0, ran.stderr
        elif name == "ENTRYPOINT":
            server = json.loads(rest)
        elif name == "HEALTHCHECK":
            check = json.loads(rest[rest.index("[") :])
    assert server[:2] == ["mt", "serve"]
    process = start(
        [str(tmp_path / "venv" / "bin" / "mt"), *server[1:], "--run", str(trained), "--port", "0", "--device", "cpu"],
        **{"cwd": folder, "env": environment, "stderr": subprocess.PIPE, "text": True},
    )
    lines = iter(process.stderr.readline, "")
    port = next(match[1] for line in lines if (match := re.search(r"http://\S+:(\d+)", line)))
    check = [part.replace(":5000/", f":{port}/") for part in check]
    assert subprocess.run(check, env=environment, cwd=folder).returncode == 0
    body = json.dumps({"q": "one two.", "source": "en", "target": "xx"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/translate", body, {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        assert json.load(answer) == {"translatedText": "ONE TWO."}
    process.terminate()
    assert process.wait(60) == 0

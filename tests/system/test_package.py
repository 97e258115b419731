"""The package that people install: its wheel, in an environment of its own, away from the checkout."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

pytestmark = pytest.mark.slow


def run(*command, cwd, environment=None):
    result = subprocess.run([str(each) for each in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """The source distribution, and the wheel that is made from it."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=root)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=unpacked)
    (wheel,) = folder.glob("*.whl")
    return source, wheel


def test_the_distributions_have_all_files_and_configs(built, root):
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
    files = {path.relative_to(root).as_posix() for path in (root / "mt_cli").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    files |= {f"mt_cli/configs/{path.name}" for path in (root / "configs").iterdir()}
    assert files <= names, sorted(files - names)
    assert not any(name.startswith(("tests", "configs", "docs")) for name in names)
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "constraints.txt", "tests/conftest.py", "docs/tutorial.md"} <= names


def test_the_wheel_trains_away_from_the_checkout(built, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    install = ("-m", "pip", "--python", scripts / "python", "install", "--no-deps", "--no-index", "-q", built[1])
    run(sys.executable, *install, cwd=tmp_path)
    paths = run(scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    # The dependencies are those of this environment; a path in such a file adds no editable installations.
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    with open(os.path.join(paths.strip(), "dependencies.pth"), "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(dependencies)) + "\n")
    work = tmp_path / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = run(scripts / "python", "-c", "import mt_cli; print(mt_cli.__file__)", cwd=work, environment=environment)
    assert where.startswith(str(tmp_path / "venv"))
    run(scripts / "mt", "init", "--example", "quickstart", cwd=work, environment=environment)
    small = ("--set", "training.max_steps=3", "--set", "model.d_model=16", "--set", "model.d_ff=16")
    run(scripts / "mt", "train", "--config", "quickstart.yaml", *small, cwd=work, environment=environment)
    assert run(scripts / "mt", "translate", "The house is red.", cwd=work, environment=environment).endswith("\n")
    report = run(scripts / "mt", "report", cwd=work, environment=environment)
    assert (work / report.strip()).stat().st_size > 1000

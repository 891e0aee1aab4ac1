"""The Containerfile, as far as it can be judged without building: what is copied is there, and it runs without rights."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
STEPS = [tuple(line.split(None, 1)) for line in re.sub(r"\\\n\s*", "", TEXT).splitlines() if line and not line.startswith("#")]


def of(step):
    return [rest for name, rest in STEPS if name == step]


def test_all_stages_stand_on_one_base_that_must_be_given():
    assert STEPS[0] == ("ARG", "BASE")
    bases = [rest.split()[0] for rest in of("FROM")]
    assert bases == ["${BASE}"] * len(bases)
    assert len(bases) > 1


DIGEST = "9" * 64


@pytest.mark.parametrize(
    ("base", "is_built"),
    [
        (f"python:3.13-slim@sha256:{DIGEST}", True),
        (f"registry.example/python@sha256:{DIGEST}", True),
        ("python:3.13-slim", False),
        (f"python@sha256:{DIGEST[:-1]}", False),
        (f"python@sha512:{DIGEST}", False),
        ("", False),
    ],
)
def test_the_base_is_named_by_its_digest(base, is_built):
    first = of("RUN")[0]
    assert "BASE" in first
    run = subprocess.run(["sh", "-c", first], env={"BASE": base}, capture_output=True, text=True, check=False)
    assert (run.returncode == 0) == is_built
    assert is_built or "by its digest" in run.stderr


@pytest.mark.parametrize("arguments", ["'--enable-optimizations' '--with-lto'", "'--prefix=/usr'", "None"])
def test_the_base_has_a_python_with_optimizations(arguments, tmp_path):
    """The step is run with a Python whose build says so, or does not."""
    step = of("RUN")[1]
    code = re.search(r'python -c "(.*)"', step, re.DOTALL)[1]
    fake = f"import sysconfig; sysconfig.get_config_var = lambda name: {arguments!r}; {code.removeprefix('import sysconfig; ')}"
    ran = subprocess.run([sys.executable, "-c", fake], capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) is ("--enable-optimizations" in arguments)
    assert ran.returncode == 0 or "without --enable-optimizations" in ran.stderr


def test_all_bytecode_is_in_the_image(tmp_path):
    """The step compiles a package and a library into the folder where the last stage's Python looks, and Python takes it."""
    (step,) = [step for step in of("RUN") if "compileall" in step]
    environment = [rest for name, rest in STEPS if name == "ENV"]
    folder = "/opt/moorage/bytecode"
    assert all(f"PYTHONPYCACHEPREFIX={folder}" in rest for rest in environment)
    assert "unchecked-hash /opt/moorage/lib" in step
    assert 'get_path("stdlib")' in step
    library, bytecode = tmp_path / "lib", tmp_path / "bytecode"
    library.mkdir()
    (library / "held.py").write_text("value = 1")
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", library]
    subprocess.run(compiling, env=variables, check=True)
    (library / "held.py").write_text("value = 2")  # not looked at any more
    asked = [sys.executable, "-c", "import held; print(held.value)"]
    assert subprocess.run(asked, env=variables, capture_output=True, text=True, check=True).stdout == "1\n"


def test_no_address_is_in_it():
    assert "://" not in TEXT
    assert not re.search(r"\w+\.\w+/", "".join(of("ARG") + of("FROM")))


def copied():
    """Return what is copied from the project, not from another stage."""
    for rest in of("COPY"):
        words = rest.split()
        if not words[0].startswith("--from="):
            yield from words[:-1]


def test_what_is_copied_is_there_and_reaches_the_builder():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(set(copied())) == sorted(kept)
    assert [name for name in copied() if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_the_wheel_is_built_from_what_is_copied(tmp_path):
    pytest.importorskip("hatchling")
    for name in copied():
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert {"moorage/py.typed", "moorage/interfaces/web/bundle/licenses.txt", "moorage/docs/index.md"} <= names


def test_packages_are_those_of_the_lock():
    installs = [step for step in " && ".join(of("RUN")).split("&&") if "pip install" in step]
    assert installs
    for step in installs:
        locked = "--require-hashes -r" in step and "requirements/run.txt" in step
        assert locked or ("--no-deps" in step and step.strip().endswith("*.whl"))


def test_what_only_builds_is_left_behind():
    lock = (ROOT / "requirements" / "run.txt").read_text()
    builds = {"hatchling", *re.findall(r"^([\w-]+)==(?:[^\n]*\n(?!\w))*?    # via hatchling$", lock, re.MULTILINE)}
    assert len(builds) > 3
    (step,) = [part for part in " && ".join(of("RUN")).split("&&") if "pip uninstall" in part]
    assert set(step.split("--yes")[1].split()) == {*builds, "pip"}


def test_it_runs_as_a_user_without_rights_and_writes_nothing():
    last = STEPS[max(number for number, (name, _) in enumerate(STEPS) if name == "FROM") :]
    assert ("USER", "65532:65532") in last
    assert not [name for name, _ in last if name in {"RUN", "ADD", "VOLUME"}]
    assert ("ENTRYPOINT", '["moorage"]') in last
    (env,) = [rest for name, rest in last if name == "ENV"]
    assert "PYTHONDONTWRITEBYTECODE=1" in env.split()

"""The plugin for krew: a manifest that krew accepts, and an archive that starts Moorage with what is there."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

import moorage

ROOT = Path(__file__).resolve().parents[2]
URL = "https://example.com/releases"
#: The fields of a manifest, from krew's types.go; each may be absent unless it has a star.
TYPES = {
    "": {"apiVersion*", "kind*", "metadata*", "spec*"},
    "spec": {"version*", "shortDescription*", "description", "caveats", "homepage", "platforms*"},
    "platform": {"uri*", "sha256*", "selector", "files", "bin*"},
    "file": {"from*", "to*"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("krew")
    subprocess.run([sys.executable, ROOT / "scripts" / "krew", f"{URL}/", folder], check=True)
    return folder


@pytest.fixture
def manifest(made):
    return yaml.safe_load((made / "moorage.yaml").read_text())


def check(kind, value):
    known = {name.rstrip("*") for name in TYPES[kind]}
    assert {name.rstrip("*") for name in TYPES[kind] if name.endswith("*")} <= value.keys() <= known


def test_the_manifest_is_one_that_krew_accepts(manifest):
    check("", manifest)
    spec = manifest["spec"]
    check("spec", spec)
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])  # safe in a path
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    for platform in spec["platforms"]:
        check("platform", platform)
        assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
        for one in platform["files"]:
            check("file", one)
        for one in platform["selector"]["matchExpressions"]:
            assert (one["key"], one["operator"]) == ("os", "In")
    assert "@" not in (yaml.safe_dump(manifest))


def test_the_archive_is_what_the_manifest_says(made, manifest):
    (platform,) = manifest["spec"]["platforms"]
    archive = made / platform["uri"].removeprefix(f"{URL}/")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with tarfile.open(archive) as opened:
        assert {one["from"] for one in platform["files"]} == set(opened.getnames())
        assert opened.getmember(platform["bin"]).mode == 0o755
        assert moorage.__version__ in opened.extractfile(platform["bin"]).read().decode()


WHEEL = f"moorage @ {URL}/moorage-{moorage.__version__}-py3-none-any.whl"
STARTED = {  # what is on the PATH → what is started
    "moorage": ({"moorage", "kubectl-moorage", "uvx"}, "kubectl-moorage explain a b"),
    "uvx": ({"uvx", "pipx"}, f"uvx -q --from {WHEEL} kubectl-moorage explain a b"),
    "pipx": ({"pipx"}, f"pipx run -q --spec {WHEEL} kubectl-moorage explain a b"),
    "an older moorage, without the plugin": (
        {"moorage", "uvx"}, f"uvx -q --from {WHEEL} kubectl-moorage explain a b",
    ),
}  # fmt: skip


@pytest.fixture
def start(made, tmp_path):
    """Start the plugin with some programs on the PATH; each prints its name and arguments. krew's link comes first."""
    with tarfile.open(next(made.glob("*.tar.gz"))) as opened:
        opened.extractall(tmp_path / "store", filter="data")

    def starting(programs):
        for folder in ("krew", "bin"):
            (tmp_path / folder).mkdir()
        (tmp_path / "krew" / "kubectl-moorage").symlink_to(tmp_path / "store" / "kubectl-moorage")
        for name in programs:
            (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
            (tmp_path / "bin" / name).chmod(0o755)
        (tmp_path / "bin" / "dirname").symlink_to("/usr/bin/dirname")
        env = {**os.environ, "PATH": f"{tmp_path / 'krew'}{os.pathsep}{tmp_path / 'bin'}"}
        words = ["/bin/sh", tmp_path / "krew" / "kubectl-moorage", "explain", "a", "b"]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=10)

    return starting


@pytest.mark.parametrize(("programs", "started"), STARTED.values(), ids=STARTED)
def test_the_plugin_starts_what_is_there(start, programs, started):
    found = start(programs)
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{started}\n", "")


def test_the_plugin_says_what_to_install(start):
    found = start(())
    assert (found.returncode, found.stdout) == (1, "")
    assert (
        found.stderr
        == "error: found no moorage, uvx or pipx on the PATH; install Moorage first: https://example.com/releases\n"
    )


def test_the_checksum_of_a_wheel_that_is_there_is_named(tmp_path):
    (tmp_path / f"moorage-{moorage.__version__}-py3-none-any.whl").write_bytes(b"a wheel")
    subprocess.run([sys.executable, ROOT / "scripts" / "krew", URL, tmp_path], check=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as opened:
        text = opened.extractfile("kubectl-moorage").read().decode()
    assert f".whl#sha256={hashlib.sha256(b'a wheel').hexdigest()}'" in text


def test_the_script_needs_a_place():
    found = subprocess.run([sys.executable, ROOT / "scripts" / "krew", "here"], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "usage: scripts/krew URL DIRECTORY" in found.stderr

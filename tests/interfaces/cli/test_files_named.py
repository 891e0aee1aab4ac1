"""Every option that names a file, with everything a file can be: one line and the status, soon and in little memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moorage.basis.files import read_file
from moorage.basis.serving.certificate_authority import make_authority
from moorage.errors import InputError
from tests.interfaces.cli.hostile import check_harmless
from tests.ports import reserve_port

ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "examples/trace-openb"
KINDS = ["missing", "empty", "a directory", "a pipe", "a device", "unreadable", "a loop", "large", "binary"]


def place(kind, path):
    """Put a kind of file at a path."""
    if kind == "empty":
        path.touch()
    elif kind == "a directory":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "unreadable":
        path.touch(mode=0)
    elif kind == "a loop":
        path.symlink_to(path.name)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(100 << 20)
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 4)


# -- what each place is ---------------------------------------------------------------------------------------------------

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def kubeconfig(folder, user=None, cluster=None):
    config = {
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }  # fmt: skip
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def run_with(folder, *flags, **config):
    return ["run", "--secure-port=0", "--leader-elect=false", "--kubeconfig", kubeconfig(folder, **config), *flags]


def with_extender(folder, file, which):
    extender = {"urlPrefix": "https://127.0.0.1:1", "filterVerb": "f", "enableHTTPS": True, "tlsConfig": {which: str(file)}}
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, "extenders": [extender]}))
    return path


def serving(folder, *flags):
    where = ["--bind-address=127.0.0.1", f"--secure-port={reserve_port()}", "--authentication-skip-lookup"]
    return ["run", "--leader-elect=false", "--kubeconfig", kubeconfig(folder), *where, *flags]


def up(folder, *flags):
    return ["up", "--home", folder / "home", "--for", "0", "--nodes", "0", "--no-scheduler", *flags]


PLACES = {  # the place, and the command for a file there
    "simulate -f": lambda folder, file: ["simulate", "-f", file],
    "simulate --config": lambda folder, file: ["simulate", "-f", ROOT / "examples/demo", "--config", file],
    "simulate --nodes": lambda folder, file: ["simulate", "--trace", "openb", "--nodes", file, "--pods", TRACE / "pods.csv"],
    "simulate --pods": lambda folder, file: ["simulate", "--trace", "openb", "--nodes", TRACE / "nodes.csv", "--pods", file],
    "config validate": lambda folder, file: ["config", "validate", file],
    "config convert": lambda folder, file: ["config", "convert", file],
    "run --config": lambda folder, file: run_with(folder, "--config", file),
    "run --policy-config-file": lambda folder, file: run_with(folder, "--policy-config-file", file),
    "run --kubeconfig": lambda folder, file: ["run", "--secure-port=0", "--kubeconfig", file],
    "run --authentication-kubeconfig": lambda folder, file: serving(folder, "--authentication-kubeconfig", file),
    "run --authorization-kubeconfig": lambda folder, file: serving(folder, "--authorization-kubeconfig", file),
    "run --tls-cert-file": lambda folder, file: serving(folder, "--tls-cert-file", file, "--tls-private-key-file", file),
    "run --tls-sni-cert-key": lambda folder, file: serving(folder, "--tls-sni-cert-key", f"{file},{file}"),
    "run --cert-dir, the key": lambda folder, file: serving(folder, "--cert-dir", a_pair(folder, file, "key")),
    "run --cert-dir, the certificate": lambda folder, file: serving(folder, "--cert-dir", a_pair(folder, file, "crt")),
    "run --client-ca-file": lambda folder, file: serving(folder, "--client-ca-file", file),
    "run --requestheader-client-ca-file": lambda folder, file: serving(folder, "--requestheader-client-ca-file", file),
    "run --allow-metric-labels-manifest": lambda folder, file: run_with(folder, "--allow-metric-labels-manifest", file),
    "certificate-authority": lambda folder, file: run_with(folder, cluster={"certificate-authority": str(file)}),
    "client-certificate": lambda folder, file: run_with(
        folder, user={"client-certificate": str(file), "client-key-data": "LS0tLS1CRUdJTiA="}
    ),
    "client-key": lambda folder, file: run_with(
        folder, user={"client-key": str(file), "client-certificate-data": "LS0tLS1CRUdJTiA="}
    ),
    "tokenFile": lambda folder, file: run_with(folder, user={"tokenFile": str(file), "username": "no"}),
    "an extender's authority": lambda folder, file: run_with(folder, "--config", with_extender(folder, file, "caFile")),
    "an extender's certificate": lambda folder, file: run_with(folder, "--config", with_extender(folder, file, "certFile")),
    "up -f": lambda folder, file: up(folder, "-f", file),
    "up --config": lambda folder, file: [*up(folder)[:-1], "--config", file],
    "up --data": lambda folder, file: up(folder, "--data", file),
    "up --kubeconfig": lambda folder, file: up(folder, "--kubeconfig", file),
    "up --home": lambda folder, file: [*up(folder), "--home", file],
}  # fmt: skip


def certificates_of(folder):
    return folder / "certs"


def a_pair(folder, file, end):
    """Return a folder with a certificate and a key, one of them the file."""
    certificates = certificates_of(folder)
    certificates.mkdir()
    for one in ("key", "crt"):
        (certificates / f"kube-scheduler.{one}").write_text("x")
    (certificates / f"kube-scheduler.{end}").unlink()
    (certificates / f"kube-scheduler.{end}").symlink_to(file)
    return certificates


#: What is no fault: a kind of file that a place takes, or that is made where it is missing.
FINE = {
    ("up --data", "missing"), ("up --data", "empty"), ("up --kubeconfig", "missing"), ("up --kubeconfig", "empty"),
    ("up --kubeconfig", "large"), ("up --kubeconfig", "binary"), ("up --kubeconfig", "unreadable"), ("up --home", "missing"),
    ("up --home", "a directory"), ("run --cert-dir, the key", "missing"), ("run --cert-dir, the certificate", "missing"),
    ("tokenFile", "empty"), ("tokenFile", "binary"),  # read again when it is used
}  # fmt: skip
#: As root, everything can be read.
ROOTS = {"unreadable"} if os.geteuid() == 0 else set()


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
def test_every_kind_of_file_in_every_place(moorage, tmp_path, monkeypatch, name):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("moorage.basis.client.kubeconfig._PIPE_S", 0.05)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in KINDS:
        if (name, kind) in FINE or kind in ROOTS:
            continue
        folder = tmp_path / kind.replace(" ", "-")
        folder.mkdir()
        file = folder / "file"
        place(kind, file)
        if file.is_file():
            file.chmod(0o600 & file.stat().st_mode)
        ran = moorage(*PLACES[name](folder, file))
        if kind == "empty" and ran.status == 0:
            continue  # an empty file says nothing, and that may be enough
        assert ran.status == 1, (kind, ran)
        assert (ran.err.count("error: ") or ran.err.count("command failed") or ran.err.count(str(file))) == 1, (kind, ran.err)
        assert any(str(one) in ran.err for one in (file, certificates_of(folder), "extenders[0].tlsConfig"))
        assert "Traceback" not in ran.err
        assert len(ran.err) < 2000
        check_harmless(ran.err)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "in KiB"


# -- kubeconfigs from pipes ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kubeconfig_may_come_from_a_pipe_as_a_shell_makes_it(tmp_path):
    path = kubeconfig(tmp_path, user={"username": "u"})
    command = f"exec '{sys.executable}' -m moorage run --secure-port=0 --kubeconfig <(sleep 0.3; cat '{path}')"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert ": context 'c': username and password are no longer supported" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_an_unwritten_pipe_times_out(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: this is a pipe, and it was not written to its end within 0\.05s"):
        read_file(tmp_path / "pipe", pipe_s=0.05)
    reading, writing = os.pipe()
    os.write(writing, b"half")
    with pytest.raises(InputError, match="not written to its end"):
        read_file(f"/dev/fd/{reading}", pipe_s=0.05)
    os.write(writing, bytes(100))
    with pytest.raises(InputError, match="larger than the limit of 50 bytes"):
        read_file(f"/dev/fd/{reading}", 50, pipe_s=5)
    os.write(writing, b"all")
    os.close(writing)
    assert read_file(f"/dev/fd/{reading}", 50, pipe_s=5) == b"all"
    os.close(reading)


def test_dev_null_is_an_empty_kubeconfig():
    assert read_file("/dev/null", pipe_s=1) == b""
    with pytest.raises(InputError, match="this is a device"):
        read_file("/dev/null")


# -- exec plugins -------------------------------------------------------------------------------------------------------

PROGRAMS = {  # what it does, and what ends the scheduler meanwhile
    "prints 100 MB": ("head -c 100000000 /dev/zero; exec sleep 60", signal.SIGTERM),
    "never ends": ("exec sleep 60", signal.SIGINT),
}


@pytest.mark.slow
@pytest.mark.parametrize(("program", "number"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_signal_ends_a_scheduler_whose_exec_plugin_runs(tmp_path, program, number):
    marked = f"echo $$ > {tmp_path}/pid; {program}"
    user = {"exec": {**EXEC, "command": "/bin/sh", "args": ["-c", marked]}}
    command = [sys.executable, "-m", "moorage", *map(str, run_with(tmp_path, user=user))]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not (tmp_path / "pid").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 1, "it stood for no lease"
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert said.splitlines()[-1].endswith('"finished without leader elect"')


# -- what `up` keeps at home --------------------------------------------------------------------------------------------


def an_empty_key(home):
    make_authority(home / "pki")
    (home / "pki" / "ca.key").write_text("")


def a_linked_home(home):
    home.rename(home.with_name("elsewhere"))
    home.symlink_to("elsewhere")


def a_linked_kubeconfig(home):
    (home / "kubeconfig").symlink_to(home / "precious")


def a_linked_folder(home):
    (home / "elsewhere").mkdir()
    (home / "pki").symlink_to("elsewhere")


HOMES = {  # what is there, and what is said of it
    "an empty key": (an_empty_key, "pki/ca.key: it is damaged (Unable to load PEM file."),
    "a link in the place of home": (
        a_linked_home,
        "home: expected a folder, this is a symbolic link; use the target of the link",
    ),
    "a link in the place of the keys": (a_linked_folder, "home/pki: expected a folder, this is a symbolic link; use the"),
    "a link in the place of the kubeconfig": (a_linked_kubeconfig, "home/kubeconfig: expected a file, this is a symbolic link"),
}


@pytest.mark.parametrize(("make", "text"), HOMES.values(), ids=HOMES)
def test_what_is_wrong_at_home(moorage, tmp_path, make, text):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    make(home)
    ran = moorage(*up(tmp_path))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert text in ran.err
    assert not (home / "precious").exists()
    assert not list(tmp_path.rglob("elsewhere/*"))


def test_a_home_that_is_not_known(moorage):
    ran = moorage("up", "--home", "~no-such-user/x")
    assert (ran.status, ran.err) == (1, "error: ~no-such-user/x: unknown home directory\n")


def test_a_world_writable_home_is_restricted_with_a_warning(moorage, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o757)
    ran = moorage(*up(tmp_path))
    assert ran.status == 0
    assert ran.err == f"{home}: others could change it (mode 0757); now only its owner can\n"
    assert home.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o077 for path in [home / "kubeconfig", *(home / "pki").iterdir()]} == {0}
    assert moorage(*up(tmp_path)).err == ""

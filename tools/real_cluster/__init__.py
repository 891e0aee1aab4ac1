"""A real control plane on this machine, for tests and comparisons: etcd, kube-apiserver, controllers, a scheduler, nodes.

The programs are those of ``oracles/cluster``. All listen on loopback, on free ports; all that they write is in one temporary
folder. The nodes are played: their pods run, finish and end, but no container exists.

    bin/kubectl          kubectl of the same release
    kubeconfig           of an administrator; scheduler.kubeconfig is that of system:kube-scheduler
    *.log                what each program says
    audit.log            what was asked, if an audit policy is given
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization

from moorage.basis.serving.certificate_authority import CONTROLLERS, SCHEDULER, Authority, make_authority
from tools.oracles import built

__all__ = ["NONE", "THEIRS", "ClusterError", "ControlPlane", "Wanted", "real_cluster"]

THEIRS: Final = "kube-scheduler"
NONE: Final = "none"
#: How long a program may take to be ready, and to end, in seconds.
_READY_S, _END_S = 90.0, 15.0
_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "nodes")
_SERVICES: Final = "10.96.0.0/16"


class ClusterError(Exception):
    """A program did not start, or ended; the text has the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to start. ``arguments`` are more arguments of the programs, by their names; ``node`` those of the played nodes."""

    nodes: int = 3
    scheduler: str = NONE
    controllers: bool = True
    feature_gates: str = ""
    runtime_config: str = ""
    audit_policy: Path | None = None
    scheduler_config: Path | None = None
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    node: Sequence[str] = ()


class ControlPlane:
    """The running programs. Made by ``real_cluster``."""

    def __init__(self, folder: Path, wanted: Wanted, program: Path) -> None:
        self.folder, self.wanted = folder, wanted
        self.kubeconfig, self.scheduler_kubeconfig = folder / "kubeconfig", folder / "scheduler.kubeconfig"
        self.kubectl = folder / "bin" / "kubectl"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._program = program
        self._ports = dict(zip(("etcd", "peers", *_PROGRAMS[1:4]), _free_ports(5), strict=True))
        self._authority: Authority = make_authority(folder / "pki")

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self._ports['kube-apiserver']}"

    @property
    def token(self) -> str:
        """A bearer token of an administrator."""
        return self._authority.admin_token

    @property
    def ca(self) -> Path:
        """The certificate that verifies the API server."""
        return self.folder / "pki" / "ca.crt"

    def start(self) -> None:
        """Start everything, and return when the API server and the nodes are ready.

        Raises  ClusterError
        """
        (self.folder / "bin").mkdir()
        for name in _PROGRAMS:
            (self.folder / "bin" / name).symlink_to(self._program)
        self._run("etcd", self._etcd())
        self._write_access()
        self._run("kube-apiserver", self._apiserver())
        self._wait("kube-apiserver", "/readyz")
        if self.wanted.controllers:
            self._run("kube-controller-manager", self._controllers())
        if self.wanted.scheduler == THEIRS:
            self.start_scheduler()
        if self.wanted.controllers:
            self._wait_for("kube-controller-manager", lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default"))
        if self.wanted.nodes:
            self._run("nodes", [
                f"--kubeconfig={self.kubeconfig}", f"--count={self.wanted.nodes}", *self.wanted.node,
                *self.wanted.arguments.get("nodes", ()),
            ])  # fmt: skip
            self._wait_for("nodes", self._nodes_are_ready)

    def start_scheduler(self) -> None:
        """Start kube-scheduler, and wait until it is ready.

        Raises  ClusterError
        """
        self._run("kube-scheduler", self._scheduler())
        self._wait("kube-scheduler", "/readyz")

    def end(self, name: str) -> None:
        """End a program, by force if it takes too long."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def stop(self) -> None:
        """End all programs."""
        for name in reversed(list(self.processes)):
            self.end(name)

    def get(self, path: str, port: int | None = None) -> bytes:
        """Return what a server answers an administrator with; empty if it is not there yet, or not 200."""
        asked = http.client.HTTPSConnection(
            "127.0.0.1", port or self._ports["kube-apiserver"], timeout=10, context=self._tls(verify=port is None)
        )
        try:
            asked.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = asked.getresponse()
            said = answer.read()
            return said if answer.status == 200 else b""
        except (OSError, http.client.HTTPException):
            return b""
        finally:
            asked.close()

    def check(self) -> None:
        """See that no program has ended.

        Raises  ClusterError
        """
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise ClusterError(f"{name} has ended with status {process.returncode}; its last lines:\n{self._tail(name)}")

    # -- arguments of the programs ---------------------------------------------------------------------------------------------

    def _etcd(self) -> list[str]:
        client, peers = (f"http://127.0.0.1:{self._ports[one]}" for one in ("etcd", "peers"))
        return [
            f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync", "--log-level=warn", f"--quota-backend-bytes={4 << 30}",
        ]  # fmt: skip

    def _apiserver(self) -> list[str]:
        pki = self.folder / "pki"
        arguments = [
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}", "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['kube-apiserver']}", "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}",
            f"--client-ca-file={pki / 'ca.crt'}", f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={_SERVICES}", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.pub'}", f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}", "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User", "--shutdown-delay-duration=0s", *self._gates(),
        ]  # fmt: skip
        if self.wanted.runtime_config:
            arguments.append(f"--runtime-config={self.wanted.runtime_config}")
        if self.wanted.audit_policy is not None:
            arguments += [
                f"--audit-policy-file={self.wanted.audit_policy.resolve()}",
                f"--audit-log-path={self.folder / 'audit.log'}",
            ]
        return [*arguments, *self.wanted.arguments.get("kube-apiserver", ())]

    def _controllers(self) -> list[str]:
        pki, kubeconfig = self.folder / "pki", self.folder / "controllers.kubeconfig"
        return [
            f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1", f"--secure-port={self._ports['kube-controller-manager']}",
            f"--cert-dir={self.folder / 'controllers'}", f"--root-ca-file={pki / 'ca.crt'}",
            f"--service-account-private-key-file={pki / 'sa.key'}", f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}", "--use-service-account-credentials=true", "--leader-elect=false",
            "--kube-api-qps=300", "--kube-api-burst=600", "--concurrent-deployment-syncs=10", *self._gates(),
            *self.wanted.arguments.get("kube-controller-manager", ()),
        ]  # fmt: skip

    def _scheduler(self) -> list[str]:
        kubeconfig = self.scheduler_kubeconfig
        arguments = [
            f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}", "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['kube-scheduler']}", f"--cert-dir={self.folder / 'scheduler'}", *self._gates(),
        ]  # fmt: skip
        if self.wanted.scheduler_config is not None:
            arguments.append(f"--config={self.wanted.scheduler_config.resolve()}")
        else:
            arguments += [f"--kubeconfig={kubeconfig}", "--leader-elect=false"]
        return [*arguments, *self.wanted.arguments.get("kube-scheduler", ())]

    def _gates(self) -> list[str]:
        return [f"--feature-gates={self.wanted.feature_gates}"] if self.wanted.feature_gates else []

    def _write_access(self) -> None:
        authority, port = self._authority, self._ports["kube-apiserver"]
        tokens = self.folder / "tokens.csv"
        tokens.touch(0o600)
        tokens.write_text(f"{authority.admin_token},admin,admin,system:masters\n")
        key = serialization.load_pem_private_key(authority.signing_key, None).public_key()
        public = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        (self.folder / "pki" / "sa.pub").write_bytes(public)
        authority.write_kubeconfig(self.kubeconfig, port, name="real")
        authority.write_kubeconfig(self.scheduler_kubeconfig, port, SCHEDULER, name="real")
        authority.write_kubeconfig(self.folder / "controllers.kubeconfig", port, CONTROLLERS, name="real")

    # -- processes -------------------------------------------------------------------------------------------------------------

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        """Start a program. It ends with this process: it reads its standard input, and ends when that closes."""
        environment = {**os.environ, "UNTIL_INPUT_ENDS": "1"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603  the command is ours
                [self.folder / "bin" / name, *arguments], stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def _wait(self, name: str, path: str) -> None:
        port = self._ports[name]
        self._wait_for(name, lambda: self.get(path, None if name == "kube-apiserver" else port))

    def _wait_for(self, name: str, is_ready: object) -> None:
        assert callable(is_ready)
        ends = time.monotonic() + _READY_S
        while not is_ready():
            self.check()
            if time.monotonic() > ends:
                raise ClusterError(f"{name} is not ready after {_READY_S:.0f} s; its last lines:\n{self._tail(name)}")
            time.sleep(0.1)

    def _nodes_are_ready(self) -> bool:
        found = self.get("/api/v1/nodes?resourceVersion=0")
        if not found:
            return False
        nodes = json.loads(found)["items"]
        free = [one for one in nodes if not (self.wanted.controllers and one["spec"].get("taints"))]
        return len(free) >= self.wanted.nodes

    def _tail(self, name: str) -> str:
        with suppress(OSError):
            return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:])
        return ""

    def _tls(self, *, verify: bool) -> ssl.SSLContext:
        if verify:
            return ssl.create_default_context(cafile=self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # schedulers sign their own certificates
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def _free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now."""
    opened = [socket.socket() for _ in range(count)]
    try:
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in opened]
    finally:
        for one in opened:
            one.close()


@contextmanager
def real_cluster(wanted: Wanted, folder: Path | None = None) -> Iterator[ControlPlane]:
    """Run a control plane while the context is open; its folder, a new temporary one if none is given, is deleted after it.

    Raises  tools.oracles.OracleMissingError where the programs cannot be had; ClusterError
    """
    program = built("cluster")
    with _ended_by_sigterm(), _running(program, wanted, folder) as plane:
        yield plane


@contextmanager
def _running(program: Path, wanted: Wanted, folder: Path | None) -> Iterator[ControlPlane]:
    made = Path(tempfile.mkdtemp(prefix="real-cluster-")) if folder is None else folder
    made.mkdir(parents=True, exist_ok=True)
    plane = ControlPlane(made, wanted, program)
    try:
        plane.start()
        yield plane
    finally:
        with _unbroken():
            plane.stop()
            shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise, where a process would end at once and leave the folder behind."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _unbroken() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back, so that the end is not cut short."""
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""A cluster with its controllers, seen from outside: the one of MOORAGE_TEST_KUBECONFIG, or that of ``moorage up``.

Both are asked over HTTP by a client of its own, as a user's tools would. ``moorage run`` runs as a process, with no more rights
than the role ``system:kube-scheduler`` gives, under a name of its own, so that the cluster's scheduler may stay. What a test
makes has a namespace and nodes of its own, which are deleted with it; nodes are objects, and no kubelet stands behind them.
"""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from moorage.basis.client.credentials import tls_context
from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig

SOURCES = Path(__file__).resolve().parents[3] / "src"
NAMED = "MOORAGE_TEST_KUBECONFIG"
#: Names the program of a real kube-scheduler, which is run in the place of ours.
THEIRS = "MOORAGE_TEST_KUBE_SCHEDULER"
#: Its release: that of ``oracles/cluster``.
RELEASE_OF_THEIRS = "1.37"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
CLAIMS, SLICES = "/apis/resource.k8s.io/v1", "/apis/resource.k8s.io/v1/resourceslices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
#: How long things may take on a busy machine.
PATIENCE_S = 30.0


#: The program that schedules.
OURS = (sys.executable, "-m", "moorage", "run")


class Refused(Exception):
    """The server's answer was not 2xx."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body.get('message')}")
        self.status, self.body = status, body


class Cluster:
    """A client, and places to work in."""

    def __init__(self, kubeconfig, folder, *, is_real, program=None):
        self.kubeconfig, self.folder, self.is_real = kubeconfig, folder, is_real
        self.program = OURS if program is None else (program,)
        around = ClientEnvironment(os.environ, time.monotonic, lambda: datetime.now(UTC), warn=lambda line: None)
        self.endpoint = read_kubeconfig([kubeconfig], must_exist=True, warn=lambda line: None).endpoint(around)
        self.identity = asyncio.run(self.endpoint.credentials.identity())
        self.places = 0

    def ask(self, method, path, body=None, content_type="application/json"):
        """Return what the server answers.

        Raises  Refused
        """
        where = urlsplit(self.endpoint.server)
        tls = tls_context(self.endpoint, self.identity)
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        made = kind(where.hostname, where.port, timeout=30, **({"context": tls} if tls else {}))
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if self.identity.token:
            headers["Authorization"] = f"Bearer {self.identity.token}"
        try:
            made.request(method, where.path + path, None if body is None else json.dumps(body), headers)
            answer = made.getresponse()
            text = answer.read()
        finally:
            made.close()
        try:
            said = json.loads(text)
        except ValueError:
            said = {"message": text.decode()}
        if answer.status >= 300:
            raise Refused(answer.status, said)
        return said

    @contextmanager
    def place(self):
        self.places += 1
        place = Place(self, f"moorage-{os.getpid()}-{self.places}")
        try:
            yield place
        finally:
            place.clear()


class Place:
    """A namespace, nodes and a scheduler's name, for one test."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.ask = cluster, name, cluster.ask
        self.inside = f"/api/v1/namespaces/{name}"
        self.pods = f"{self.inside}/pods"
        self.made, self.processes = [], []
        #: What schedulers are started with.
        self.environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        self.make("/api/v1/namespaces", "Namespace", name, namespaced=False)
        # Where a controller makes it, too, one of the two is refused.
        with suppress(Refused):
            self.make(f"{self.inside}/serviceaccounts", "ServiceAccount", "default", kept=False)

    def clear(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for pod in self.ask("GET", self.pods)["items"]:
            self.end(pod["metadata"]["name"])
        for path in reversed(self.made):
            with suppress(Refused):
                self.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    def make(self, path, kind, name, api_version="v1", *, namespaced=True, kept=True, metadata=None, **fields):
        """Make an object; it goes with the place."""
        metadata = {"name": name, **({"namespace": self.name} if namespaced else {}), **(metadata or {})}
        found = self.ask("POST", path, {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields})
        if kept and (not namespaced or kind == "Pod"):
            self.made.append(f"{path}/{name}")
        return found

    def named(self, name):
        """Return a name for what has no namespace."""
        return f"{self.name}-{name}"

    def node(self, name, cpu="2", **labels):
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        labels = {"kubernetes.io/hostname": self.named(name), "moorage.test/place": self.name, **labels}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
        self.make("/api/v1/nodes", "Node", self.named(name), namespaced=False, metadata={"labels": labels}, status=status)

    def pod(self, name, cpu="1", *, labels=None, **spec):
        """Make a pod that goes to the place's nodes, whatever state they seem to be in; a kubelet takes 3 s to end it."""
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, **spec.pop("resources", {})}}]
        rest = {"schedulerName": self.name, "nodeSelector": {"moorage.test/place": self.name}, **spec}
        return self.make(
            self.pods, "Pod", name, metadata={"annotations": {"moorage.dev/stop-seconds": "3"}, "labels": labels or {}},
            spec={"tolerations": [{"operator": "Exists"}], "containers": containers, **rest},
        )  # fmt: skip

    def get(self, name):
        return self.ask("GET", f"{self.pods}/{name}")

    def end(self, name):
        """Do what a kubelet does when a pod has ended."""
        with suppress(Refused):
            now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
            self.ask("DELETE", f"{self.pods}/{name}", now)

    def node_of(self, name):
        return self.get(name)["spec"].get("nodeName", "").removeprefix(f"{self.name}-")

    def condition(self, name, kind="PodScheduled"):
        """Return the pod's condition of this kind, or {}."""
        return next((one for one in self.get(name)["status"].get("conditions", ()) if one["type"] == kind), {})

    def events(self, reason, name=""):
        held = self.ask("GET", f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")["items"]
        return [one for one in held if one["reason"] == reason and name in {"", one["regarding"]["name"]}]

    def token(self, account):
        """Make a service account, and return a token of it."""
        path = f"{self.inside}/serviceaccounts"
        self.make(path, "ServiceAccount", account)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        return self.ask("POST", f"{path}/{account}/token", body)["status"]["token"]

    # -- schedulers ----------------------------------------------------------------------------------------------------------

    def scheduler(self, *flags, leads=True, delegates=False, program=None, profile=None, plugins=None):
        """Start a scheduler, whose log is ``process.log``. ``delegates``: it asks the cluster who its own callers are.

        ``program`` is another than the cluster's, ``profile`` another name that its pods ask for, with ``plugins``.
        """
        number = len(self.processes)
        folder = self.cluster.folder / f"{self.name}-{number}"
        folder.mkdir()
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": profile or self.name, **({"plugins": plugins} if plugins else {})}],
            "clientConnection": {"kubeconfig": str(self._as_scheduler(folder))},
            # The role allows this name of a lease, in whatever namespace.
            "leaderElection": {"leaderElect": leads, "resourceNamespace": self.name, "resourceName": "kube-scheduler"},
        }  # fmt: skip
        (folder / "config.yaml").write_text(json.dumps(config))
        if delegates:
            flags += tuple(f"--{what}-kubeconfig={folder / 'kubeconfig'}" for what in ("authentication", "authorization"))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*(program or self.cluster.program), "--config", folder / "config.yaml", "--secure-port=0", "-v=3", *flags],
                env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        process.log, process.kubeconfig = folder / "log", folder / "kubeconfig"
        self.processes.append(process)
        return process

    def _as_scheduler(self, folder):
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        for user in config["users"]:
            user["user"]["as"] = "system:kube-scheduler"
        path = folder / "kubeconfig"
        path.touch(0o600)
        path.write_text(json.dumps(config))
        return path

    def holder(self):
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{self.name}/leases/kube-scheduler"
        try:
            return self.ask("GET", lease)["spec"].get("holderIdentity", "")
        except Refused:
            return ""

    def until(self, ask, seconds=PATIENCE_S):
        """Return the first answer that is not empty."""
        begin = time.monotonic()
        while not (answer := ask()):
            if time.monotonic() - begin > seconds:
                logs = [one.log.read_text()[-3000:] for one in self.processes]
                raise AssertionError("\n".join([f"not within {seconds:g} s", *logs]))
            time.sleep(0.05)
        return answer

    def bound(self, *names, seconds=PATIENCE_S):
        self.until(lambda: all(self.node_of(name) for name in names), seconds)
        return [self.node_of(name) for name in names]

    def complaints(self):
        """Return what schedulers warned of and took for errors, but for what is said of every cluster without that map."""
        lines = [line for one in self.processes for line in one.log.read_text().splitlines() if line[:1] in {"W", "E"}]
        usual = ("trusting.py", "authorization-kubeconfig", "The manifest file is empty", "No authentication-kubeconfig")
        usual += ("broadcaster already stopped",)  # kube-scheduler's, as it ends
        return [line for line in lines if not any(part in line for part in usual)]


@contextmanager
def a_cluster(folder, *, is_real, program=None):
    if is_real:
        yield Cluster(Path(os.environ[NAMED]), folder, is_real=True)
        return
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "MOORAGE_HOME": str(folder)}
    release = [] if program is None else ["--emulate", RELEASE_OF_THEIRS]
    process = subprocess.Popen(
        [sys.executable, "-m", "moorage", "up", "--no-scheduler", "--nodes=0", *release],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True,
    )  # fmt: skip
    try:
        for line in process.stdout:
            if line.startswith("Ctrl-C"):
                break
        yield Cluster(folder / "kubeconfig", folder, is_real=False, program=program)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)

"""``python -m tools.real_cluster.audited``: what ``moorage run`` asks of a real API server, beside kube-scheduler.

Each schedules the same pods on a control plane of its own: single ones, gangs, pods with claims, pods that evict others, and
pods that fit nowhere. With ``--minutes``, pods, gangs and claims come and go for so long afterwards, on both at the same time.
The audit log of the API server has each request of a scheduler. Exit 1 if Moorage makes a kind of request that kube-scheduler
does not make, sends a body of other fields, or makes more requests of a kind.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tools.oracles import BuildError, OracleMissingError
from tools.real_cluster import NONE, THEIRS, ClusterError, ControlPlane, Wanted, real_cluster
from tools.real_cluster.__main__ import SKIPPED

USER: Final = "system:kube-scheduler"
POLICY: Final = f"""apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {{level: Request, users: ["{USER}"], verbs: [create, update, patch, delete, deletecollection]}}
- {{level: Metadata, users: ["{USER}"]}}
- {{level: None}}
"""
GATES: Final = "GenericWorkload=true"
#: How many requests of a kind more than kube-scheduler's are allowed, as a share and at least: how often a pod that cannot be
#: placed is tried depends on the moment at which the victims end.
SHARE, LEAST = 0.1, 3
_NODES, _CPU = 4, 16
_WAIT_S, _REST_S = 180.0, 8.0
_READING: Final = frozenset(["get", "list", "watch"])
_PODS: Final = "/api/v1/namespaces/default/pods"
_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
#: An API server keeps the managed fields that a body does not have.
_KEPT: Final = "managedFields"
_FREE: Final = frozenset(["labels", "annotations", "nodeSelector"])
#: What depends on the moment: a repeated event becomes a series; a pod is read whose binding has an unknown outcome.
_AT_TIMES: Final = frozenset([("patch", "events.events.k8s.io"), ("get", "pods")])


@dataclass(slots=True)
class Requests:
    """The requests of one scheduler: how many of each kind, and which fields their bodies have together."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    forms: dict[tuple[str, str], set[tuple[str, ...]]] = field(default_factory=dict)
    refused: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    #: What the API server said the last time to those.
    said: dict[tuple[str, str, int], str] = field(default_factory=dict)


def main() -> int:
    """Run both; exit with 1 if Moorage asks for more, with 77 where the programs cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tools.real_cluster.audited", description=__doc__)
    parser.add_argument("--pods", type=int, default=300, help="how many pods, about [300]")
    parser.add_argument("--minutes", type=float, default=0.0, help="how long pods, gangs and claims come and go then [0]")
    given = parser.parse_args()
    try:
        with ThreadPoolExecutor(2 if given.minutes else 1) as pool:
            theirs, ours = pool.map(lambda one: requests_of(one, given.pods, given.minutes), (THEIRS, NONE))
    except OracleMissingError as error:
        sys.stderr.write(f"skipped: {error}\n")
        return SKIPPED
    except (BuildError, ClusterError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write("\n".join(table(theirs, ours)) + "\n")
    complaints = list(differences(theirs, ours))
    sys.stdout.write("\n".join(["", *complaints]) + "\n" if complaints else "\nMoorage asks for nothing more.\n")
    return int(bool(complaints))


def table(theirs: Requests, ours: Requests) -> Iterator[str]:
    """Yield the lines of a table of both."""
    yield f"{'request':<52}{'kube-scheduler':>16}{'moorage run':>14}"
    for kind in sorted(theirs.kinds.keys() | ours.kinds.keys(), key=lambda one: (one[0] in _READING, one[1], one[0])):
        yield f"{' '.join(kind):<52}{theirs.kinds[kind]:>16,}{ours.kinds[kind]:>14,}"
    yield f"{'all':<52}{theirs.kinds.total():>16,}{ours.kinds.total():>14,}"


def differences(theirs: Requests, ours: Requests) -> Iterator[str]:
    """Yield what Moorage asks for and kube-scheduler does not."""
    for kind, count in sorted(ours.kinds.items()):
        name, known = " ".join(kind), theirs.kinds[kind]
        if not known and kind in _AT_TIMES:
            continue
        if not known:
            yield f"{name}: {count} times; kube-scheduler never does"
        elif count > known * (1 + SHARE) + LEAST:
            yield f"{name}: {count} times; kube-scheduler {known} times"
        forms = theirs.forms.get(kind) or {()}
        for form in sorted(ours.forms.get(kind, set()) - forms) if known else ():
            nearest = min(forms, key=lambda one: len({*one} ^ {*form}))
            more, less = sorted({*form} - {*nearest}), sorted({*nearest} - {*form})
            yield f"{name}: a body with {', '.join(more) or 'nothing more'}, without {', '.join(less) or 'nothing'}"
    for (verb, resource, code), count in sorted(ours.refused.items()):
        if count > (known := theirs.refused[verb, resource, code]) + LEAST:
            said = ours.said[verb, resource, code]
            yield f"{verb} {resource}: refused {count} times with {code} ({said}); kube-scheduler's {known} times"


# -- what is played --------------------------------------------------------------------------------------------------------


def requests_of(scheduler: str, pods: int, minutes: float = 0.0) -> Requests:
    """Let kube-scheduler, or Moorage for NONE, schedule the pods on a new control plane, and return what it asked for.

    ``minutes``: how long pods come and go then.

    Raises  ClusterError; tools.oracles.OracleMissingError
    """
    with tempfile.TemporaryDirectory(prefix="audited-") as made:
        policy = Path(made) / "policy.yaml"
        policy.write_text(POLICY)
        return _played(scheduler, pods, minutes, policy)


def _played(scheduler: str, pods: int, minutes: float, policy: Path) -> Requests:
    wanted = Wanted(
        nodes=_NODES, scheduler=scheduler, feature_gates=GATES, audit_policy=policy,
        runtime_config="scheduling.k8s.io/v1beta1=true", arguments={"nodes": (f"--cpu={_CPU}",)},
    )  # fmt: skip
    with real_cluster(wanted) as plane:
        process = _moorage(plane) if scheduler == NONE else None
        try:
            play = _Play(plane)
            play.run(pods)
            if minutes:
                play.churn(minutes * 60)
        finally:
            if process is not None:
                process.terminate()
                process.wait(30)
        return read(plane.folder / "audit.log")


def _moorage(plane: ControlPlane) -> subprocess.Popen[bytes]:
    with (plane.folder / "moorage.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603  the command is ours
            [
                sys.executable, "-m", "moorage", "run", "--emulate", "1.37", "--kubeconfig", str(plane.scheduler_kubeconfig),
                "--secure-port=0", "--leader-elect=false", f"--feature-gates={GATES}",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip


class _Play:
    """Makes the objects of one run, as an administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        where = urlsplit(plane.server)
        context = ssl.create_default_context(cafile=str(plane.ca))
        self._server = http.client.HTTPSConnection(where.hostname or "", where.port, timeout=60, context=context)

    def run(self, pods: int) -> None:
        """Make all, and wait until nothing is left to do."""
        singles, gangs, claims = pods // 2, pods // 30, pods // 10
        group = "scheduling.k8s.io/v1"
        self._ask("POST", f"/apis/{group}/priorityclasses", group, "PriorityClass", "cargo", value=1000)
        self._devices(claims)
        for number in range(singles):
            self._pod(f"single-{number}", "10m")
        for number in range(gangs):
            path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
            policy = {"schedulingPolicy": {"gang": {"minCount": 5}}}
            self._ask("POST", path, "scheduling.k8s.io/v1beta1", "PodGroup", f"gang-{number}", spec=policy)
            for member in range(5):
                self._pod(f"gang-{number}-{member}", "10m", schedulingGroup={"podGroupName": f"gang-{number}"})
        for number in range(claims):
            self._pod(f"claim-{number}", "10m", resourceClaims=[{"name": "it", "resourceClaimName": f"claim-{number}"}])
        placed = singles + gangs * 5 + claims
        self._until(lambda: self._bound() == placed)
        for number in range(_NODES):  # one a node: no two fit, nor does one beside those of the next wave
            self._pod(f"ballast-{number}", f"{_CPU * 5 // 8}")
        self._until(lambda: self._bound() == placed + _NODES)
        for number in range(_NODES):
            self._pod(f"cargo-{number}", f"{_CPU // 2}", priorityClassName="cargo")
        self._until(lambda: self._bound("cargo-") == _NODES)
        for number in range(_NODES):
            self._pod(f"late-{number}", "10m", nodeSelector={"no": "node"})
        time.sleep(_REST_S)

    def churn(self, seconds: float) -> None:
        """Let pods, gangs and claims come and go, once a second; some fit nowhere, and some evict others."""
        for number in range(_NODES):
            self._gone(f"cargo-{number}")
        begins = time.monotonic()
        for at in range(int(seconds)):
            self._plane.check()
            self._pod(f"churn-{at}", "10m")
            self._gone(f"churn-{at - 60}")
            for every, life, make in (
                (10, 60, self._gang), (12, 48, self._gang_too_large), (7, 70, self._claiming), (60, 60, self._evicting),
            ):  # fmt: skip
                if at % every == 0:
                    make(at, True)
                if at >= life and (at - life) % every == 0:
                    make(at - life, False)
            if at % 5 == 0:
                self._mark(f"node-{at % _NODES}", str(at))
            time.sleep(max(0.0, begins + at + 1 - time.monotonic()))
        time.sleep(_REST_S)

    def _gang(self, at: int, comes: bool, cpu: str = "10m", name: str = "crew") -> None:
        group, path = f"{name}-{at}", "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
        if comes:
            policy = {"schedulingPolicy": {"gang": {"minCount": 5}}}
            self._ask("POST", path, "scheduling.k8s.io/v1beta1", "PodGroup", group, spec=policy)
        for member in range(5):
            if comes:
                self._pod(f"{group}-{member}", cpu, schedulingGroup={"podGroupName": group})
            else:
                self._gone(f"{group}-{member}")
        if not comes:
            self._ask("DELETE", f"{path}/{group}")

    def _gang_too_large(self, at: int, comes: bool) -> None:
        self._gang(at, comes, f"{_CPU - 1}", "fleet")

    def _claiming(self, at: int, comes: bool) -> None:
        name = f"crane-{at}"
        if not comes:
            self._gone(name)
            self._ask("DELETE", f"{_CLAIMS}/{name}")
            return
        spec = {"devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": "crane"}}]}}
        self._ask("POST", _CLAIMS, "resource.k8s.io/v1", "ResourceClaim", name, spec=spec)
        self._pod(name, "10m", resourceClaims=[{"name": "it", "resourceClaimName": name}])

    def _evicting(self, at: int, comes: bool) -> None:
        """One pod a node, and another for which one of them has to go."""
        for number in range(_NODES):
            if comes:
                self._pod(f"stone-{at}-{number}", f"{_CPU * 5 // 8}")
            else:
                self._gone(f"stone-{at}-{number}")
        if comes:
            self._pod(f"admiral-{at}", f"{_CPU * 3 // 4}", priorityClassName="cargo")
        else:
            self._gone(f"admiral-{at}")

    def _gone(self, name: str) -> None:
        self._ask("DELETE", f"{_PODS}/{name}", missing=True)

    def _mark(self, node: str, value: str) -> None:
        """Change a label of a node, which may let pods fit."""
        self._ask("PATCH", f"/api/v1/nodes/{node}", body={"metadata": {"labels": {"mark": value}}})

    def _devices(self, count: int) -> None:
        group = "/apis/resource.k8s.io/v1"
        self._ask("POST", f"{group}/deviceclasses", "resource.k8s.io/v1", "DeviceClass", "crane", spec={})
        for node in range(_NODES):
            pool = {"name": f"node-{node}", "generation": 1, "resourceSliceCount": 1}
            devices = [{"name": f"c{number}"} for number in range(count)]
            spec = {"driver": "crane.example.com", "nodeName": f"node-{node}", "pool": pool, "devices": devices}
            self._ask("POST", f"{group}/resourceslices", "resource.k8s.io/v1", "ResourceSlice", f"cranes-{node}", spec=spec)
        for number in range(count):
            spec = {"devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": "crane"}}]}}
            self._ask("POST", _CLAIMS, "resource.k8s.io/v1", "ResourceClaim", f"claim-{number}", spec=spec)

    def _pod(self, name: str, cpu: str, **more: object) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        self._ask("POST", _PODS, "v1", "Pod", name, spec={"containers": [container], **more})

    def _bound(self, prefix: str = "") -> int:
        items = self._ask("GET", _PODS)["items"]
        return sum(bool(one["spec"].get("nodeName")) and one["metadata"]["name"].startswith(prefix) for one in items)

    def _until(self, holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + _WAIT_S
        while not holds():
            self._plane.check()
            if time.monotonic() > ends:
                raise ClusterError("the pods were not placed in time")
            time.sleep(0.5)

    def _ask(
        self, method: str, path: str, version: str = "", kind: str = "", name: str = "", *,
        body: Mapping[str, Any] | None = None, missing: bool = False, **content: object,
    ) -> Any:  # fmt: skip
        """Send a request; ``missing``: the object may be gone."""
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content} if kind else body
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        head = {"Authorization": f"Bearer {self._plane.token}", "Content-Type": form}
        self._server.request(method, path, json.dumps(made) if made else None, head)
        answer = self._server.getresponse()
        said = answer.read()
        if missing and answer.status == http.HTTPStatus.NOT_FOUND:
            return {}
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise ClusterError(f"{method} {path}: {answer.status} {said.decode(errors='replace')}")
        return json.loads(said)


# -- the audit log ---------------------------------------------------------------------------------------------------------


def read(log: Path) -> Requests:
    """Return the requests of schedulers in an audit log."""
    found = Requests()
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            # A watch may last longer than the cluster.
            stage = "ResponseStarted" if one["verb"] == "watch" else "ResponseComplete"
            if one["user"]["username"] != USER or one["stage"] != stage:
                continue
            kind = one["verb"], _resource_of(one)
            found.kinds[kind] += 1
            found.forms.setdefault(kind, set()).add(tuple(sorted({*_fields(one.get("requestObject"))})))
            code = one.get("responseStatus", {}).get("code", 0)
            if code >= http.HTTPStatus.BAD_REQUEST:
                found.refused[(*kind, code)] += 1
                found.said[(*kind, code)] = str(one["responseStatus"].get("message", ""))
    return found


def _resource_of(one: Mapping[str, Any]) -> str:
    named = one.get("objectRef")
    if not named or not named.get("resource"):
        return str(urlsplit(str(one["requestURI"])).path)
    group, sub = named.get("apiGroup", ""), named.get("subresource", "")
    return str(named["resource"]) + (f".{group}" if group else "") + (f"/{sub}" if sub else "")


def _fields(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that a body has; the keys of free maps do not count."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == _KEPT:
                continue
            yield f"{path}.{key}"
            if key not in _FREE:
                yield from _fields(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner, f"{path}[]")


if __name__ == "__main__":
    sys.exit(main())

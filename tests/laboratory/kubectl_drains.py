"""kubectl itself as an oracle for drains: random dumps, each drained by kubectl on the embedded API server and by ``Cluster``.

Nothing else moves on the server: no controllers run, so that a budget's figures change by evictions alone. kubectl evicts with
a grace period of 0 and gives up after a second. By hand::

    .venv/bin/python -m tests.laboratory.kubectl_drains FIRST_SEED LAST_SEED
"""

from __future__ import annotations

import json
import random
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import moorage
from moorage.interfaces.cli.live.store_loader import fill
from moorage.rules.store.store import Store
from tests.kubeconfigs import write_kubeconfig

__all__ = ["Drained", "agree", "by_cluster", "by_kubectl", "random_dump", "random_flags"]

FLAGS = ("ignore_daemonsets", "delete_emptydir_data", "force", "disable_eviction")


class Drained(NamedTuple):
    """Pods by what came of them. Of pods that compete for a budget, ``evicted`` and ``blocked`` have the budget instead."""

    evicted: Counter
    refused: frozenset
    blocked: Counter
    failed: frozenset


# -- dumps --------------------------------------------------------------------------------------------------------------


def random_dump(seed: int) -> list[dict]:
    """Return objects of a cluster whose node n1 is to be drained."""
    pick = random.Random(seed)
    objects: list[dict] = [_node(name) for name in ("n1", "n2")]
    objects += [_owner("DaemonSet", "agent"), _owner("ReplicaSet", "web"), _owner("StatefulSet", "db")]
    objects += [_budget(pick, f"b{i}", app) for i, app in enumerate(pick.sample("abc", pick.choice([1, 2, 2])))]
    if pick.random() < 0.3:
        objects.append(_budget(pick, "also", pick.choice("abc")))
    return objects + [_pod(pick, f"p{i}", "n1" if i < 7 else "n2") for i in range(9)]


def random_flags(seed: int) -> dict[str, bool]:
    pick = random.Random(seed + 10**6)
    # Most drains get past the rules, so that budgets decide.
    return {name: pick.random() < (0.2 if name == "disable_eviction" else 0.85) for name in FLAGS}


def _node(name: str) -> dict:
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"}, "conditions": ready}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}


def _owner(kind: str, name: str) -> dict:
    spec = {
        "selector": {"matchLabels": {"owner": name}}, "serviceName": "s",
        "template": {"metadata": {"labels": {"owner": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        **({"replicas": 0} if kind != "DaemonSet" else {}),
    }  # fmt: skip
    if kind == "DaemonSet":
        spec["template"]["spec"]["nodeSelector"] = {"none": "none"}
    if kind != "StatefulSet":
        del spec["serviceName"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": spec,
    }


def _budget(pick: random.Random, name: str, app: str) -> dict:
    desired, slack = pick.randint(0, 2), pick.choice([-1, 0, 0, 1, 1, 2, 5])
    healthy = max(0, desired + slack)
    status = {
        "observedGeneration": 1, "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": max(1, healthy),
        "disruptionsAllowed": max(0, healthy - desired),
    }  # fmt: skip
    spec = {"minAvailable": desired, "selector": {"matchLabels": {"app": app}}}
    if pick.random() < 0.4:
        spec["unhealthyPodEvictionPolicy"] = pick.choice(["AlwaysAllow", "IfHealthyBudget"])
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec, "status": status}


def _pod(pick: random.Random, name: str, node: str) -> dict:
    owner = pick.choice(["ReplicaSet/web"] * 6 + ["StatefulSet/db"] * 3 + ["DaemonSet/agent"] * 2 + [""])
    metadata: dict = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": pick.choice("abc")}}
    if owner:
        kind, _, controller = owner.partition("/")
        metadata["labels"]["owner"] = controller
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": controller, "uid": f"uid-{controller}", "controller": True}
        metadata["ownerReferences"] = [reference]
    if pick.random() < 0.08:
        metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
    volumes = [{"name": "v", "emptyDir": {}}] if pick.random() < 0.15 else []
    phase = pick.choice(["Running"] * 7 + ["Pending", "Succeeded", "Failed"])
    ready = "True" if phase == "Running" and pick.random() < 0.7 else "False"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


# -- kubectl ------------------------------------------------------------------------------------------------------------


def certificate(home: Path) -> None:
    """Make the key and the certificate of the server: kubectl sends tokens over TLS only."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", home / "key.pem", "-out", home / "cert.pem", "-subj", "/CN=moorage",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip


def by_kubectl(objects: list[dict], flags: dict[str, bool], home: Path) -> Drained:
    """Drain n1 with kubectl. ``home`` has the certificate, and takes files."""
    from tests.cluster.apiserver.conftest import TOKEN, serve_in_a_thread

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(home / "cert.pem", home / "key.pem")
    (home / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    store = Store(time.time, random.Random(1), b"k")
    fill(store, [str(home / "dump.json")])
    options = [f"--{name.replace('_', '-')}" for name, given in flags.items() if given]
    with serve_in_a_thread(store, tls) as port:
        write_kubeconfig(home / "config", port, TOKEN, (home / "cert.pem").read_bytes())
        done = subprocess.run(
            [shutil.which("kubectl"), "drain", "n1", "--grace-period=0", "--timeout=1s", *options],
            capture_output=True, text=True, timeout=60, check=False,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "KUBECONFIG": str(home / "config"), "GOGC": "off"},
        )  # fmt: skip
    return _read(done.stdout, done.stderr, objects, disable_eviction=flags["disable_eviction"])


def _read(out: str, err: str, objects: list[dict], *, disable_eviction: bool) -> Drained:
    lines = re.findall(r"cannot delete [^:\n]*: ([^\n\]]*)", err)
    refused = {name for line in lines for name in re.findall(r"default/[\w-]+", line)}
    gone = {f"default/{name}" for name in re.findall(r"^pod/(\S+) (?:evicted|deleted)$", out, re.MULTILINE)}
    blocked = {f"default/{name}" for name in re.findall(r'pods/"(\S+)" -n "default" \(will retry after 5s\)', err)}
    failed = {f"default/{name}" for name in re.findall(r'pods/"(\S+)" -n "default": This pod has more than one', err)}
    return Drained(_named(gone, objects), frozenset(refused), _named(blocked, objects), frozenset(failed))


# -- the cluster --------------------------------------------------------------------------------------------------------


def by_cluster(objects: list[dict], flags: dict[str, bool]) -> Drained:
    """Drain n1 in virtual time, and read off what happens at once."""
    report = moorage.Cluster.from_objects(*objects).drain("n1", grace_period_s=0, timeout_s=1, **flags)
    refused = frozenset(one.pod for one in report.refused)
    at_once = {one.pod for one in report.pods if one.evicted_seconds == 0}
    several = frozenset(one.pod for one in report.pods if one.outcome == "never" and "," in one.budget)
    blocked = {one.pod for one in report.pods if one.outcome == "never"} - several
    return Drained(_named(at_once, objects), refused, _named(blocked, objects), several)


def _named(pods: set[str], objects: list[dict]) -> Counter:
    """Count pods by name, and running ones with a budget by their label: kubectl evicts these in any order."""
    found: Counter = Counter()
    covered = {one["spec"]["selector"]["matchLabels"]["app"] for one in objects if one["kind"] == "PodDisruptionBudget"}
    held = {f"default/{one['metadata']['name']}": one for one in objects if one["kind"] == "Pod"}
    for name in pods:
        pod = held[name]
        app = pod["metadata"]["labels"]["app"]
        competes = app in covered and pod["status"]["phase"] == "Running"
        found[f"app={app}" if competes else name] += 1
    return found


def agree(seed: int, home: Path) -> tuple[Drained, Drained]:
    """Return what kubectl did with one random dump, and what the cluster says."""
    objects, flags = random_dump(seed), random_flags(seed)
    return by_kubectl(objects, flags, home), by_cluster(objects, flags)


def main(first: int, last: int) -> int:
    """Compare seeds, print those that differ, and return how many do."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        certificate(home)
        totals: Counter = Counter()
        for seed in range(first, last + 1):
            theirs, ours = agree(seed, home)
            totals.update({name: len(getattr(theirs, name)) > 0 for name in Drained._fields})
            if theirs != ours:
                differ += 1
                print(f"seed {seed}:\n  kubectl {theirs}\n  moorage {ours}\n  {random_flags(seed)}")
        print(f"{last - first + 1} drains, {differ} differ; drains with {dict(totals)}")
    return differ


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)

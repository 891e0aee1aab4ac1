"""``moorage up`` in a test's process: its store, its requests, its controllers in virtual time, and the engine that places.

``scenario`` makes a random cluster of each seed, with what the API server reads of it: priority classes, limit ranges, runtime
classes, levels of pod security. ``broken_offers`` takes each answer of ``explain`` for its pending pods at its word.
"""

import asyncio
import json
import random
from functools import partial

import moorage
from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import KINDS, served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import serve
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.cluster.controllers.manager import ControllerManager
from moorage.interfaces.web.kubectl_commands import run_command
from moorage.rules.store.store import Store
from moorage.rules.store.subresources import bind, options_of

__all__ = ["LocalUp", "broken_offers", "carried_out", "scenario"]

START = 1_790_000_000.0
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PODS = served("pods")
READ = {
    "Node", "Pod", "Namespace", "PriorityClass", "LimitRange", "RuntimeClass", "Deployment", "ReplicaSet", "StatefulSet", "Job",
    "DaemonSet", "ResourceQuota", "PodDisruptionBudget", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
}  # fmt: skip
CLASSES = [("low", 10, "PreemptLowerPriority"), ("high", 1000, "PreemptLowerPriority"), ("polite", 500, "Never")]
#: Changes without a command, and those that only let a rollout begin.
LEFT_TO_PEOPLE = {"add-node", "wait", "repair", "surge"}
_ADMIN = User("admin", ("system:masters",))


class LocalUp:
    """A cluster that begins with documents, or with what another one has."""

    def __init__(self, documents=(), like=None):
        self.now = START if like is None else like.now
        draw = random.Random(7 if like is None else like.store.version)  # no uid of the other store comes again
        self.store = Store(lambda: self.now, draw, b"k")
        if like is not None:
            kept = [(kind, one) for kind in KINDS for one in like.store.page(kind).records]
            self.store.restore(kept, like.store.version)
        self.manager = ControllerManager(self.store, all_controllers(job_s=1e6), lambda _: None)
        for one in documents:
            kind = next(kind for kind in KINDS if (kind.api_version, kind.kind) == (one["apiVersion"], one["kind"]))
            home = one["metadata"].get("namespace", "default") if kind.namespaced else ""
            self.store.create(kind, home, json.loads(json.dumps(one)))

    def documents(self):
        """Return the objects that a dump would have."""
        kinds = [kind for kind in KINDS if kind.kind in READ and kind.stored_as is None]
        found = [(kind, one.document()) for kind in kinds for one in self.store.page(kind).records]
        found.sort(key=lambda one: one[1]["metadata"]["creationTimestamp"])  # the older of two pods is first in the queue
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **document} for kind, document in found]

    def pods(self):
        return {f"{one.namespace}/{one.name}": one.document() for one in self.store.page(PODS).records}

    def run(self, command):
        """Run a kubectl command; what it raises is the refusal."""
        guard, rights = Authenticator({}), Authorizer(self.store)

        async def act(method, path, body=None, media="application/json"):
            sent = b"" if body is None else json.dumps(body).encode()
            request = HTTPRequest(method, path, {}, "application/json", media, sent, _ADMIN)
            return json.loads(serve(self.store, guard, rights, request, find_target(path, self.store.kinds)).body)

        return asyncio.run(run_command(command, act))

    def settle(self, seconds=45.0):
        """Let time pass: controllers do what is due, and pending pods are tried in the order of the queue."""
        end = self.now + seconds
        for _ in range(60):
            while self.manager.step():
                pass
            if self._schedule():
                continue
            due = self.manager.next_time()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
        self.now = max(self.now, end)  # what is created after it is younger

    def _schedule(self):
        """Try the pending pods as a fresh scheduler does. Return whether one was placed, or others made way for one."""
        if all(pod["spec"].get("nodeName") for pod in self.pods().values()):
            return False
        done = False
        for one in moorage.Cluster.from_objects(self.documents()).schedule():
            namespace, _, name = one.pod.partition("/")
            if one.pod not in self.pods() or self.pods()[one.pod]["spec"].get("schedulingGates"):
                continue
            if one.node is not None:
                bind(self.store, namespace, name, {"metadata": {"name": name}, "target": {"kind": "Node", "name": one.node}})
                done = True
            elif one.victims and not self.pods()[one.pod].get("status", {}).get("nominatedNodeName"):
                self.store.change(PODS, namespace, name, _nominated(one.nominated), subresource="status")
                for victim in one.victims:
                    self.store.delete(PODS, *victim.split("/"), options_of({"gracePeriodSeconds": 0}))
                return True
        return done


def _nominated(node):
    def change(document):
        document.setdefault("status", {})["nominatedNodeName"] = node

    return change


# -- random clusters ------------------------------------------------------------------------------------------------------


def _node(pick, name):
    labels = {HOST: name, **({ZONE: zone} if (zone := pick("abc ").strip()) else {}), "disk": pick(["ssd", "hdd"])}
    taints = pick([[], [], [{"key": "t", "value": "v", "effect": "NoSchedule"}]])
    amounts = {"cpu": pick(["2", "4"]), "memory": "8Gi", "pods": "8"}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": pick([False] * 4 + [True])},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def _pod_spec(pick, app, classes):
    container = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": pick(["100m", "900m", "1800m", "3"])}}}
    if pick([0, 0, 0, 1]):
        container["resources"]["limits"] = {"cpu": "3", "memory": "1Gi"}
    spec = {"containers": [container]}
    if pick([0, 0, 1]):
        container["ports"] = [{"containerPort": 80, "hostPort": pick([80, 81])}]
    if pick([0, 0, 0, 1]):
        container["ports"] = [{"containerPort": 80}]
        spec["hostNetwork"] = True
    if pick([0, 0, 1]):
        spec["nodeSelector"] = {pick(["disk", "dsik"]): pick(["ssd", "sdd"])}
    if classes and pick([0, 1]):
        spec["priorityClassName"] = pick(classes)
    if pick([0, 0, 0, 1]):
        spec["runtimeClassName"] = "boxed"
    if pick([0, 0, 1]):
        term = {"topologyKey": pick([ZONE, HOST]), "labelSelector": {"matchLabels": {"app": app}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if pick([0, 0, 1]):
        few = {"minDomains": 4} if pick([0, 1]) else {}
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": pick([ZONE, HOST]), "whenUnsatisfiable": "DoNotSchedule", **few,
             "labelSelector": {"matchLabels": {"app": app}}}
        ]  # fmt: skip
    if pick([0, 0, 0, 0, 1]):
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    return spec


def _workload(pick, kind, app, spec, size):
    labels = {"app": app}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": app, "labels": labels}, "spec": spec}
    template = {"metadata": {"labels": labels}, "spec": spec}
    if kind == "Job":
        template["spec"] = {**spec, "restartPolicy": "Never"}
        body = {"parallelism": size, "completions": size, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": app}, "spec": body}
    body = {"replicas": size, "selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        body |= {"serviceName": app, "podManagementPolicy": pick(["OrderedReady", "Parallel"])}
    if kind == "DaemonSet":
        body.pop("replicas")
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app}, "spec": body}


def scenario(seed):
    """Return the documents of a random cluster: nodes, what admission reads, and workloads."""
    draw = random.Random(seed)
    pick = draw.choice
    made = [_node(pick, f"n{i}") for i in range(draw.randint(1, 4))]
    classes = []
    for name, value, policy in CLASSES:
        if pick([0, 1]):
            classes.append(name)
            made.append({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
                "preemptionPolicy": policy,
            })  # fmt: skip
    scheduling = pick([{}, {"scheduling": {"nodeSelector": {"disk": "ssd"}}}])
    boxed = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "boxed"}, "handler": "b"}
    made.append({**boxed, **scheduling})
    if pick([0, 0, 1]):
        limits = {"type": "Container", "min": {"cpu": pick(["200m", "1"])}, "max": {"cpu": "4"}}
        made.append({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds"}, "spec": {"limits": [limits]}})
    kinds = ["Deployment", "Deployment", "StatefulSet", "ReplicaSet", "Job", "Pod", "DaemonSet"]
    for i in range(draw.randint(2, 4)):
        app = f"{pick('uvw')}{i}"
        made.append(_workload(pick, pick(kinds), app, _pod_spec(pick, app, classes), draw.randint(1, 3)))
    return made if seed < WITH_RULES else [*map(partial(_updated, pick), made), *_rules(pick)]


def _updated(pick, document):
    """Give a workload a strategy of updates."""
    strategies = {
        "Deployment": ("strategy", [{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}]),
        "StatefulSet": ("updateStrategy", [{"type": "OnDelete"}]),
        "DaemonSet": ("updateStrategy", [{"type": "OnDelete"}]),
    }
    field, others = strategies.get(document["kind"], ("", [None]))
    one = pick([None, *others])
    return document if one is None else {**document, "spec": {**document["spec"], field: one}}


def _rules(pick):
    """Return quotas and admission policies."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all", "namespace": "default"}}
    made = [{**quota, "spec": {"hard": {"requests.cpu": pick(["4", "7"]), "pods": "12"}}}] if pick([0, 0, 1]) else []
    group = "admissionregistration.k8s.io"
    for name in [name for name in RULES if pick([0, 0, 0, 1])]:
        form, groups, resources, does = RULES[name]
        rule = {"apiGroups": groups, "apiVersions": ["*"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": resources}
        if form == "Mutating":
            rule["operations"] = ["CREATE"]
            act = {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": does}}], "reinvocationPolicy": "Never"}
        else:
            act = {"validations": [{"expression": does}]}
        bound = {"policyName": name, **({} if form == "Mutating" else {"validationActions": ["Deny"]})}
        spec = {"matchConstraints": {"resourceRules": [rule]}, **act}
        kind = f"{form}AdmissionPolicy"
        made.append({"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        made.append({"apiVersion": f"{group}/v1", "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": bound})
    return made


#: Clusters of seeds from here on also have quotas, admission policies and strategies of updates.
WITH_RULES = 300_000
_TEMPLATES = ["deployments", "statefulsets", "daemonsets", "replicasets"]
_NEW = "object == null || oldObject != null"
_OLD = "object == null || oldObject == null"
_CPU = "spec.containers.all(c, quantity(c.resources.requests.cpu).compareTo(quantity('{least}')) >= 0)"
#: Admission policies by name: the form, groups, resources, and the expression.
RULES = {
    "no-small-templates": (
        "Validating", ["apps"], _TEMPLATES, f"object == null || object.spec.template.{_CPU.format(least='1')}",
    ),
    "no-small-pods": ("Validating", [""], ["pods"], f"{_NEW} || object.{_CPU.format(least='90m')}"),
    "no-new-tolerations": (
        "Validating", ["apps"], _TEMPLATES,
        f"{_OLD} || (has(object.spec.template.spec.tolerations) == has(oldObject.spec.template.spec.tolerations))",
    ),
    "stay-cordoned": (
        "Validating", [""], ["nodes"],
        f"{_OLD} || object.spec.?unschedulable.orValue(false) == oldObject.spec.?unschedulable.orValue(false)",
    ),
    "no-deletion": ("Validating", [""], ["pods"], "object != null || request.userInfo.username.startsWith('system:')"),
    "stay-large": (
        "Validating", ["apps"], ["deployments/scale", "statefulsets/scale"], "object.spec.replicas >= oldObject.spec.replicas",
    ),
    "on-ssd": ("Mutating", [""], ["pods"], "[JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'disk': 'ssd'}}]"),
    "no-classes": ("Validating", ["scheduling.k8s.io"], ["priorityclasses"], "object == null || object.value < 100"),
}  # fmt: skip


# -- answers at their word ---------------------------------------------------------------------------------------------------


def broken_offers(seed):
    """Return how many answers were carried out for one random cluster, and those that did not come true, in words."""
    try:
        up = LocalUp(scenario(seed))
    except ApiError:
        return 0, []  # no such cluster
    up.settle(120)
    cluster = moorage.Cluster.from_objects(up.documents())
    waiting = [queued.pod.key for queued in cluster.scheduler.queue.ranked() if queued.pod.key in up.pods()]
    gated = [key for key, pod in up.pods().items() if pod["spec"].get("schedulingGates")]
    tried, broken = 0, []
    for key in waiting[:1] or gated[:1]:  # the pods behind it in the queue find what it leaves them
        for remedy in cluster.least_change(key, alternatives=4):
            by_people = any(one.verb in LEFT_TO_PEOPLE or one.owner == "config" for one in remedy.changes)
            if by_people or not remedy.commands:
                continue
            tried += 1
            if why := carried_out(up, key, remedy):
                broken.append(f"seed {seed}, {key}: {' and '.join(remedy.texts)} → {remedy.nodes}: {why}; {remedy.commands}")
    return tried, broken


def carried_out(before, key, remedy):
    """Run the commands of an answer. Return why the pod is not where it should be."""
    up = LocalUp(like=before)
    held = up.pods()
    for command in remedy.commands:
        try:
            up.run(command)
        except ApiError as error:
            return f"refused: {error.message}"
    up.settle()
    after = up.pods()
    controller = _controller(up, held[key])
    mine = {
        name: pod for name, pod in after.items()
        if (name == key if controller is None else _controller(up, pod) == controller)
    }  # fmt: skip
    fresh = {
        name: pod for name, pod in mine.items()
        if name == key or name not in held or held[name]["metadata"]["uid"] != pod["metadata"]["uid"]
    }  # fmt: skip
    where = {pod["spec"].get("nodeName") for pod in fresh.values()}
    return "" if where & set(remedy.nodes) else f"{sorted(fresh)} on {sorted(map(str, where))}"


def _controller(up, pod):
    """Return the kind and name of the workload of a pod."""
    owners = [one for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")]
    if not owners:
        return None
    found = owners[0]["kind"], owners[0]["name"]
    if found[0] == "ReplicaSet":
        held = up.store.find(served("replicasets", "apps"), pod["metadata"]["namespace"], found[1])
        above = [] if held is None else held.document()["metadata"].get("ownerReferences") or []
        if above:
            return above[0]["kind"], above[0]["name"]
    return found

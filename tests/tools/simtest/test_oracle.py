"""The oracle on histories written by hand: each minimal violation of an invariant is reported, and a valid history is not."""

import ast
from pathlib import Path

import pytest

from tools.simtest import held_objects, holdings_oracle, lists_oracle, oracle, oracle_rules, recording_index
from tools.simtest.oracle import Terms, judge
from tools.simtest.recording import (
    AttemptRecord,
    Called,
    Listed,
    Lost,
    MemoryRecord,
    Observed,
    RequestRecord,
    WriteRecord,
)

ME, PATH = "me", "/api/v1/namespaces/default/pods/p"


def node(version=1, cpu="2", meta=None, **spec):
    status = {"allocatable": {"cpu": cpu, "pods": "10"}}
    metadata = {"name": "n", "resourceVersion": str(version), "labels": meta or {}}
    document = {"metadata": metadata, "spec": spec, "status": status}
    return WriteRecord(0, "world", "PUT", "MODIFIED", "Node", "n", "n", version, document)


def pod(version, name="p", cpu="1", by="world", at=0.0, change="MODIFIED", status=None, meta=None, **spec):
    asks = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version), **(meta or {})}
    spec = {"schedulerName": "default-scheduler", "containers": asks, **spec}
    document = {"metadata": metadata, "spec": spec, "status": status or {}}
    return WriteRecord(at, by, "", change, "Pod", f"default/{name}", name, version, document)


def told(entry):
    return Observed(entry.at_s, ME, False, entry.kind, entry.key, entry.uid, entry.version)


def tried(uid="p", node="n", victims=()):
    return AttemptRecord(0, ME, uid, node, victims)


MARK = {"conditions": [{"type": "DisruptionTarget"}]}
N, P = node(), pod(2)
SEEN = [N, P, told(N), told(P)]
BOUND = [*SEEN, tried(), pod(3, by=ME, nodeName="n")]
LOW = pod(4, "low", priority=1, nodeName="n")
PREEMPTOR = pod(5, "high", cpu="8", priority=9)
WANTED = [*SEEN, LOW, PREEMPTOR, told(LOW), told(PREEMPTOR), tried("high", "", ("low",))]
DELETE = RequestRecord(0, ME, "DELETE", "/api/v1/namespaces/default/pods/low", 200, uid="low")
LEASE = RequestRecord(0, ME, "PUT", "/apis/x/leases/kube-scheduler", 200, holder=ME)


def listed(version, *entries, kind="Pod", lags=False):
    return Listed(0, ME, kind, version, {entry.uid: entry.version for entry in entries}, lags)


def gone(entry):
    return Observed(0, ME, True, entry.kind, entry.key, entry.uid, entry.version)


def binding(at):
    return RequestRecord(at, ME, "POST", f"{PATH}/binding", 201, node="n", uid="p")


def calls(*points):
    return [*SEEN, *(Called(0, ME, plugin, point, "p") for plugin, point in points)]


RESERVED = [("a", "reserve"), ("b", "reserve")]
UNDONE = [("b", "unreserve"), ("a", "unreserve")]


def reserving(uid):
    return [Called(0, ME, plugin, point, uid) for plugin, point in RESERVED]


def undoing(uid):
    return [Called(0, ME, plugin, point, uid) for plugin, point in UNDONE]


LOST = [*BOUND, told(pod(3, by=ME, nodeName="n")), Lost(0, 8, [P.document], [N.document])]


def weights(*counts):
    return [MemoryRecord(60.0 * number, ME, "tasks", count) for number, count in enumerate(counts)]


def gang(least, version=1):
    document = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}
    return WriteRecord(0, "world", "POST", "ADDED", "PodGroup", "default/g", "g", version, document)


OF_GANG = {"schedulingGroup": {"podGroupName": "g"}}
TWO = [gang(2), N, (one := pod(2, **OF_GANG)), (two := pod(3, "q", **OF_GANG)), told(N), told(one), told(two)]
PLACED = pod(4, by=ME, nodeName="n", **OF_GANG)


def disk(version, where="n", by="world", of=None, uid=None, name="d"):
    """A volume that is reached from the node of this name."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [where]}]}]
    spec = {"storageClassName": "local", "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    if of:
        spec["claimRef"] = {"namespace": "default", "name": of, "uid": uid or of}
    document = {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
    return WriteRecord(0, by, "PUT", "MODIFIED", "PersistentVolume", name, name, version, document)


def claim(version, name="c", to="", klass="local"):
    spec = {"storageClassName": klass, **({"volumeName": to} if to else {})}
    metadata = {"name": name, "namespace": "default", "uid": name}
    metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"} if to else {}
    document = {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": {}}
    return WriteRecord(0, "world", "PUT", "MODIFIED", "PersistentVolumeClaim", f"default/{name}", name, version, document)


def device_claim(version, name="rc", device="", users=(), by=ME):
    results = [{"driver": "d", "pool": "n", "device": device}] if device else []
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": user} for user in users]}
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    document = {"kind": "ResourceClaim", "metadata": metadata, "spec": {}, "status": status if device else {}}
    return WriteRecord(0, by, "PUT", "MODIFIED", "ResourceClaim", f"default/{name}", name, version, document)


def after(*writes):
    """These writes, each told at once."""
    return [entry for write in writes for entry in (write, told(write))]


AT_N = node(meta={"kubernetes.io/hostname": "n"})


def using(*claims):
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


USING = using("c")
P_USING = pod(2, **USING)
ON_DISK = pod(9, by=ME, nodeName="n", **USING)
FREE = after(AT_N, disk(11), claim(12), P_USING)
TAKEN = after(disk(13, by=ME, of="c"))
RESERVED_DISK = after(AT_N, disk(11), disk(12, of="c", name="e"), claim(13))
HOLDING = {"resourceClaims": [{"name": "r", "resourceClaimName": "rc"}]}
WITH_DEVICE = pod(29, by=ME, nodeName="n", **HOLDING)
CHOSEN = [*after(AT_N, device_claim(11, device="g", users=["x"]), pod(2, **HOLDING)), tried()]
RESERVATION_LOST = [
    *after(AT_N, device_claim(11, device="g", users="p"), (holder := pod(2, **HOLDING))),
    Lost(0, 20, [holder.document], [AT_N.document], [device_claim(10, device="g").document]),
]
FULL = pod(3, "x", cpu="2", nodeName="n")
LISTS = [N, P, FULL, listed(3, N, kind="Node"), listed(3, P, FULL), told(N), told(P)]
GOOD = {
    "what lists showed was taken in": [*LISTS, told(FULL), tried("p", "")],
    "a watch ran ahead of a list": [*LISTS, told(pod(4, "x", cpu="2", nodeName="n")), tried("p", "")],
    "a list that comes after an attempt": [
        N, P, listed(2, P), told(N), told(P), tried(), listed(3, P, FULL), pod(4, by=ME, nodeName="n"),
    ],
    "what a list does not show is gone": [*LISTS, told(FULL), listed(4, P), gone(FULL), tried("p", "")],
    "a list that lags behind": [*LISTS, told(FULL), listed(2, P), tried("p", "")],
    "a later list that lags behind": [*LISTS, told(FULL), listed(9, P, lags=True), tried("p", "")],
    "a list of what was lost": [*LISTS, Lost(0, 8, [P.document], [N.document]), tried("p", "")],
    "a list of versions that are given out again": [
        *LISTS, told(FULL), Lost(0, 2, [P.document], [N.document]), (other := pod(3, "y")), listed(3, P, other), tried("p", ""),
    ],
    "a pod is bound once its claim has a device for it": [*CHOSEN, device_claim(12, device="g", users="xp"), WITH_DEVICE],
    "a reservation that was lost before the choice, which the scheduler learns after it": [
        *RESERVATION_LOST, tried(), *after(device_claim(21, device="g", users="x")), WITH_DEVICE,
    ],
    "a device whose release was ordered and lost": [
        *after(AT_N, device_claim(11, device="g"), device_claim(12)),
        Lost(0, 20, [], [AT_N.document], [device_claim(11, device="g").document]), device_claim(21, "other", device="g"),
    ],
    "a pod is bound once its claim is": [*FREE, tried(), *TAKEN, *after(claim(14, to="d")), ON_DISK],
    "a claim leaves the free volume to the pod's other claim, because one is reserved for it": [
        *RESERVED_DISK, *after(claim(14, "b"), pod(2, **using("c", "b"))), tried(), disk(15, by=ME, of="b"),
        *after(claim(16, to="e"), claim(17, "b", to="d")), pod(19, by=ME, nodeName="n", **using("c", "b")),
    ],
    "a volume whose claim was recreated": [*FREE, *after(disk(13, of="c", uid="before")), disk(14, by=ME, of="c")],
    "a volume that was taken by what was lost": [
        *FREE, *TAKEN, Lost(0, 20, [P_USING.document], [AT_N.document], [disk(11).document, claim(12).document]),
        claim(21, "b"), told(claim(21, "b")), disk(22, by=ME, of="b"),
    ],
    "a gang goes together": [*TWO, tried(), tried("q"), PLACED, pod(5, "q", by=ME, nodeName="n", **OF_GANG)],
    "a gang of which enough were reserved at once, though one gave up its place at Permit": [
        *TWO, *reserving("p"), tried(), *reserving("q"), *undoing("q"), tried("q", ""), PLACED,
    ],
    "a gang of one pod more than it needs": [gang(1), *TWO[1:], tried(), PLACED],
    "what goes up and down": weights(10, 12, 9, 20, 11, 13),
    "a pod whose binding was lost is bound again": [*LOST, Observed(0, ME, True, "Pod", "default/p", "p", 3), told(P), tried(),
                                                    pod(9, by=ME, nodeName="n")],
    "what was deleted and is there again after all": [
        *BOUND, (seen := pod(3, by=ME, nodeName="n")), told(seen), Observed(0, ME, True, "Pod", "default/p", "p", 3),
        (big := pod(5, "q", cpu="2")), told(big), tried("q"), Lost(0, 8, [seen.document, big.document], [N.document]),
        pod(9, "q", cpu="2", by=ME, nodeName="n"),
    ],
    "a pod is bound": [*BOUND, told(N)],
    "a bind within the lease": [*SEEN, LEASE, tried(), binding(9.9), pod(3, by=ME, nodeName="n")],
    "a victim that is marked first": [*WANTED, pod(6, "low", by=ME, priority=1, nodeName="n", status=MARK), DELETE],
    "another one's doing": [*SEEN, tried(), pod(4, "x", cpu="2", by="other", nodeName="n"), pod(5, by=ME, nodeName="n")],
    "reserved and bound": calls(*RESERVED, ("a", "post_bind"), ("b", "post_bind")),
    "reserved and unreserved": calls(*RESERVED, *UNDONE),
    "reserved in part and undone": calls(*RESERVED, *UNDONE, ("a", "reserve"), *UNDONE),
}  # fmt: skip

BAD = {
    "S18": [*LISTS, tried("p", "")],
    "S18, a first list that lags behind": [N, P, listed(2, P, lags=True), told(N), tried("p", "")],
    "S18, gone": [*LISTS, told(FULL), listed(4, P), tried("p", "")],
    "S18, an older version": [*LISTS, told(FULL), (more := pod(4, "x", nodeName="n")), listed(4, P, more), tried("p", "")],
    "S18, before there was a list": [N, P, listed(2, P), told(N), told(P), tried("p", ""), listed(2, N, kind="Node")],
    "S2, though a list showed it": [*LISTS, tried(), pod(4, by=ME, nodeName="n")],
    "S2, though a list showed the node": [
        *SEEN, (small := node(3, cpu="500m")), listed(3, small, kind="Node"), tried(), pod(4, by=ME, nodeName="n"),
    ],
    "S16": [*after(AT_N, device_claim(11, device="g")), device_claim(12, "other", device="g")],
    "S17": [*CHOSEN, WITH_DEVICE],
    "S17, a reservation that was lost, which the scheduler knew": [
        *RESERVATION_LOST, *after(device_claim(21, device="g", users="x")), tried(), WITH_DEVICE,
    ],
    "S3, a volume out of reach": [*after(AT_N, disk(11, "m", of="c"), claim(12, to="d"), P_USING), tried(), ON_DISK],
    "S3, no volume": [*after(AT_N, claim(12), P_USING), tried(), ON_DISK],
    "S14": [*FREE, tried(), *TAKEN, claim(14, to="d"), ON_DISK],
    "S14, only promised": [*FREE, tried(), *TAKEN, ON_DISK],
    "S15": [*FREE, *TAKEN, *after(claim(14, "b")), disk(15, by=ME, of="b")],
    "S15, bound twice": [*FREE, claim(14, to="d"), claim(15, "b", to="d")],
    "S15, of another class": [*FREE, *after(claim(14, "b", klass="zonal")), disk(15, by=ME, of="b")],
    "S15, a second volume": [*RESERVED_DISK, *after(P_USING), tried(), disk(15, by=ME, of="c")],
    "S3, a volume is reserved elsewhere": [
        *after(AT_N, disk(11), disk(12, "m", of="c", name="e"), claim(13), P_USING), tried(), ON_DISK,
    ],
    "L2, a volume is free": FREE,
    "S1": [*BOUND, pod(4, by="world", nodeName="m")],
    "S1, lost before": [*LOST, pod(9, by=ME, nodeName="n"), pod(10, by="world", nodeName="m")],
    "S2, though told of what was lost": [
        *LOST, (big := pod(9, "q", cpu="2")), told(big), told(P), tried("q"), tried(), pod(10, by=ME, nodeName="n"),
        pod(11, "q", cpu="2", by=ME, nodeName="n"),
    ],
    "L2, after its binding was lost": LOST,
    "S2": [
        *SEEN, tried(), pod(3, by=ME, nodeName="n"), told(pod(3)), (big := pod(4, "q", cpu="2")), told(big),
        tried("q"), pod(5, "q", cpu="2", by=ME, nodeName="n"),
    ],
    "S3": [(tainted := node(7, taints=[{"key": "k", "effect": "NoSchedule"}])), P, told(tainted), told(P), tried(),
           pod(8, by=ME, nodeName="n")],
    "S4": [*SEEN, LEASE, tried(), binding(10.1), pod(3, by=ME, nodeName="n")],
    "S5": [N, (foreign := pod(2, schedulerName="x")), told(N), told(foreign), tried(),
           pod(3, by=ME, nodeName="n", schedulerName="x")],
    "S6": [*WANTED, DELETE],
    "S7": calls(*RESERVED, ("a", "unreserve"), ("b", "unreserve")),
    "S9": weights(10, 12, 12, 13, 13, 14),
    "S13": [*TWO, tried(), PLACED],
    "S13, reserved one after the other": [
        *TWO, *reserving("q"), *undoing("q"), tried("q", ""), *reserving("p"), tried(), PLACED,
    ],
    "L2, a gang": TWO,
    "L2, a gang that went in part": [*TWO, tried(), tried("q"), PLACED],
    "L2": SEEN,
}  # fmt: skip


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_valid_history_reports_nothing(history):
    assert judge(history, Terms(settled=False)) == []


@pytest.mark.parametrize(("promise", "history"), BAD.items(), ids=BAD)
def test_each_broken_invariant_is_reported(promise, history):
    promise = promise.partition(",")[0]
    found = judge(history, Terms(settled=promise == "L2"))
    assert promise in {line.partition(":")[0] for line in found}


@pytest.mark.parametrize(
    ("victim", "why"),
    [
        (pod(4, "low", priority=9, nodeName="n"), "priority is not lower"),
        (pod(4, "low", priority=1, nodeName="n"), "preemptionPolicy is Never"),
    ],
    ids=["equal priority", "preemptionPolicy Never"],
)
def test_preempting_an_equal_or_with_policy_never_breaks_s6(victim, why):
    polite = {"preemptionPolicy": "Never"} if "Never" in why else {}
    high = pod(5, "high", priority=9, **polite)
    history = [*SEEN, victim, high, told(victim), told(high), tried("high", "", ("low",))]
    assert any(why in line for line in judge(history, Terms(settled=False)))


def test_the_oracle_shares_no_code_with_the_scheduler():
    modules = (recording_index, oracle, holdings_oracle, lists_oracle, oracle_rules, held_objects)
    for module in modules:
        tree = ast.parse(Path(module.__file__).read_text())
        imported = {one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
        ours = {name for name in imported if name.startswith(("moorage", "tools"))}
        assert ours <= {"tools.simtest", "tools.simtest.recording", *(one.__name__ for one in modules)}


def near(app, key="kubernetes.io/hostname"):
    return [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]


def a_node(name, **spec):
    labels = {"kubernetes.io/hostname": name, "zone": spec.pop("zone", "a")}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": {"cpu": "2", "pods": "3"}}}


def a_pod(name, app="web", cpu="500m", **spec):
    port = spec.pop("port", None)
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": [{"hostPort": port}] if port else []}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {}}


def required(kind, terms):
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}
SPREAD = {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **WEB}]}
NODE_TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
FITS = {  # the pod, the node's spec, who is on n1 and n2 already, whether it fits on n1
    "enough room": (a_pod("p"), {}, [("n1", a_pod("x", cpu="1500m"))], True),
    "not enough cpu": (a_pod("p"), {}, [("n1", a_pod("x", cpu="1501m"))], False),
    "too many pods": (a_pod("p", cpu="1m"), {}, [("n1", a_pod(name, cpu="1m")) for name in "xyz"], False),
    "a port that is held": (a_pod("p", port=80), {}, [("n1", a_pod("x", port=80))], False),
    "a port held elsewhere": (a_pod("p", port=80), {}, [("n2", a_pod("x", port=80))], True),
    "cordoned": (a_pod("p"), {"unschedulable": True}, [], False),
    "tainted and tolerated": (
        a_pod("p", tolerations=[{"key": "k", "operator": "Exists"}]),
        {"taints": [{"key": "k", "effect": "NoSchedule"}]}, [], True,
    ),
    "a zone that is not chosen": (a_pod("p", **required("nodeAffinity", NODE_TERM)), {}, [], False),
    "a zone that is chosen": (a_pod("p", **required("nodeAffinity", NODE_TERM)), {"zone": "b"}, [], True),
    "another that it avoids": (a_pod("p", **required("podAntiAffinity", near("db"))), {}, [("n1", a_pod("x", "db"))], False),
    "another that avoids it": (a_pod("p", "db"), {}, [("n1", a_pod("x", **required("podAntiAffinity", near("db"))))], False),
    "no pod matches the affinity": (a_pod("p", **required("podAffinity", near("db"))), {}, [("n2", a_pod("x", "db"))], False),
    "the first of its kind": (a_pod("p", "db", **required("podAffinity", near("db"))), {}, [], True),
    "evenly spread": (a_pod("p", **SPREAD), {}, [("n2", a_pod("x"))], True),
    "not evenly spread": (a_pod("p", **SPREAD), {}, [("n1", a_pod("x"))], False),
}  # fmt: skip


@pytest.mark.parametrize(("asking", "spec", "others", "fits"), FITS.values(), ids=FITS)
def test_the_oracles_own_rules(asking, spec, others, fits):
    nodes = {"n1": a_node("n1", **spec), "n2": a_node("n2", zone="b")}
    placed = [(other, on) for on, other in others]
    assert (oracle_rules.fits_beside(asking, nodes["n1"], nodes, placed) == "") is fits

"""Clusters of a kind, made at random: racks, crowds, volumes, devices, nominations and resizes.

Those of ``bred_clusters`` mix parts of recorded clusters; these are built for one subject, and are denser in it. Objects are as
an API server stores them where its defaults matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moorage.api.releases import find_release
from tools.differential.bred_clusters import gates_of_any, gates_of_devices, listed

Document = dict[str, Any]
#: More pods than this that started in the same second are ordered by Go's sort in a way that is not followed; up to 1.36 also
#: those that have not started, which compare as if they started at that very moment.
SORTED_BY_INSERTION: Final = 12
#: How many pods are decided in a cluster: with more of them, a decision costs less of the cluster's making.
PENDING: Final = (6, 6, 24)
ZONES: Final = ("z0", "z1", "z2")
ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/rack"


def _thing(api_version: str, kind: str, name: str, **more: Any) -> Document:
    metadata = {"name": name, "uid": f"{kind.lower()}-{name}", **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def _node(rng: random.Random, at: int, racks: int = 4, **allocatable: Any) -> Document:
    name = f"n{at}"
    labels = {HOST: name, ZONE: ZONES[at % len(ZONES)], RACK: f"r{at % racks}"}
    if rng.random() < 0.15:
        labels.pop(rng.choice((ZONE, RACK)))
    amounts = {"cpu": str(rng.choice((2, 4, 8))), "memory": f"{rng.choice((4, 8, 16))}Gi", "pods": "110", **allocatable}
    spec: Document = {}
    if rng.random() < 0.15:
        spec["taints"] = [{"key": "held", "value": "yes", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}]
    if rng.random() < 0.08:
        spec["unschedulable"] = True
    return _thing(
        "v1", "Node", name, metadata={"labels": labels}, spec=spec, status={"allocatable": amounts, "capacity": amounts}
    )


def _pod(rng: random.Random, name: str, cpu: str = "", node: str = "", **spec: Any) -> Document:
    app = rng.choice(("web", "db", "job"))
    requests = {"cpu": cpu or rng.choice(("100m", "500m", "1", "2")), "memory": rng.choice(("128Mi", "512Mi", "1Gi"))}
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    made = {"containers": containers, **({"nodeName": node} if node else {}), **spec}
    metadata = {"namespace": rng.choice(("default", "default", "shop")), "labels": {"app": app}}
    return _thing("v1", "Pod", name, metadata=metadata, spec=made, status={})


def _spaces() -> Iterator[Document]:
    for name in ("default", "shop"):
        yield _thing("v1", "Namespace", name, metadata={"labels": {"kubernetes.io/metadata.name": name}})


def racks(rng: random.Random, release: str) -> Document:
    """Spreading and affinity between pods over zones, racks and hosts."""
    del release
    nodes = [_node(rng, at) for at in range(rng.randint(4, 14))]
    names = [one["metadata"]["name"] for one in nodes]
    placed = [_pod(rng, f"p{at:02}", "100m", rng.choice(names)) for at in range(rng.randint(4, 25))]
    pending = [_pod(rng, f"q{at:02}", **_apart(rng)) for at in range(rng.choice(PENDING))]
    for pod in placed:
        if rng.random() < 0.25:
            pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(rng)]}}
    return {"objects": [*_spaces(), *nodes, *placed, *pending]}


def _selector(rng: random.Random) -> Document:
    apps = ["web", "db", "job"]
    if rng.random() < 0.6:
        return {"matchLabels": {"app": rng.choice(apps)}}
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = {"values": rng.sample(apps, rng.randint(1, 2))} if operator in {"In", "NotIn"} else {}
    return {"matchExpressions": [{"key": "app", "operator": operator, **values}]}


def _term(rng: random.Random) -> Document:
    term: Document = {"labelSelector": _selector(rng), "topologyKey": rng.choice((ZONE, RACK, HOST))}
    if rng.random() < 0.25:
        term["namespaces"] = rng.sample(["default", "shop"], rng.randint(1, 2))
    elif rng.random() < 0.25:
        term["namespaceSelector"] = rng.choice(({}, {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}))
    return term


def _apart(rng: random.Random) -> Document:
    spec: Document = {}
    if rng.random() < 0.7:
        spec["topologySpreadConstraints"] = [_spread(rng, key) for key in rng.sample([ZONE, RACK, HOST], rng.randint(1, 2))]
    affinity: Document = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.35:
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(rng) for _ in range(rng.randint(1, 2))]}
        elif rng.random() < 0.35:
            weighted = [{"weight": rng.randint(1, 100), "podAffinityTerm": _term(rng)}]
            affinity[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "held", "operator": "Exists"}]
    if rng.random() < 0.2:
        spec["nodeSelector"] = {ZONE: rng.choice(ZONES)}
    return spec


def _spread(rng: random.Random, key: str) -> Document:
    hard = rng.random() < 0.6
    made: Document = {
        "maxSkew": rng.randint(1, 3),
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": _selector(rng),
    }
    if hard and rng.random() < 0.3:
        made["minDomains"] = rng.randint(1, 5)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.3:
            made[policy] = rng.choice(("Honor", "Ignore"))
    return made


def crowds(rng: random.Random, release: str) -> Document:
    """Full nodes, priorities, budgets and start times, some of them missing: who is evicted."""
    compares_starts = tuple(map(int, release.split(".")[:2])) >= (1, 37)
    nodes = [_node(rng, at, cpu="8") for at in range(rng.randint(1, 5))]
    placed = []
    for node in nodes:
        crowd = rng.randint(2, 20)
        for at in range(crowd):
            name = f"{node['metadata']['name']}-{at:02}"
            pod = _pod(
                rng, name, rng.choice(("250m", "500m", "1")), node["metadata"]["name"], priority=rng.choice((-5, 0, 0, 0, 1, 2))
            )
            if rng.random() < 0.6 or (crowd > SORTED_BY_INSERTION and not compares_starts):
                second = at if crowd > SORTED_BY_INSERTION else rng.randint(0, 3)
                pod["status"]["startTime"] = f"2026-01-01T00:00:{second:02}Z"
            if rng.random() < 0.08:
                pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:10:00Z", "deletionGracePeriodSeconds": 30}
                if rng.random() < 0.5:
                    why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                    pod["status"]["conditions"] = [why]
            placed.append(pod)
    wanted = ("1", "2", "4", "7")
    pending = [_pod(rng, f"q{at:02}", rng.choice(wanted), priority=rng.choice((1, 5, 10))) for at in range(rng.choice(PENDING))]
    for pod in pending:
        if rng.random() < 0.15:
            pod["spec"]["preemptionPolicy"] = "Never"
        if rng.random() < 0.2:
            pod["status"]["nominatedNodeName"] = rng.choice(nodes)["metadata"]["name"]
        if rng.random() < 0.25:
            pod["spec"] |= _apart(rng)
    return {"objects": [*_spaces(), *nodes, *(_budget(rng, at) for at in range(rng.randint(0, 4))), *placed, *pending]}


def _budget(rng: random.Random, at: int) -> Document:
    selector = rng.choice((_selector(rng), {}, _selector(rng)))
    status: Document = {"disruptionsAllowed": rng.randint(0, 3), "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3}
    if rng.random() < 0.2:
        status["disruptedPods"] = {f"n0-{rng.randint(0, 9):02}": "2026-01-01T00:00:00Z"}
    return _thing(
        "policy/v1", "PodDisruptionBudget", f"b{at}", metadata={"namespace": rng.choice(("default", "shop"))},
        spec={"selector": selector}, status=status,
    )  # fmt: skip


def nominations(rng: random.Random, release: str) -> Document:
    """Pods that are nominated to nodes, which count for others of lower or equal priority."""
    made = racks(rng, release)
    names = [one["metadata"]["name"] for one in made["objects"] if one["kind"] == "Node"]
    for pod in (one for one in made["objects"] if one["kind"] == "Pod" and not one["spec"].get("nodeName")):
        pod["spec"]["priority"] = rng.choice((0, 0, 5, 10))
        if rng.random() < 0.6:
            pod["status"]["nominatedNodeName"] = rng.choice([*names, "gone"])
        if rng.random() < 0.15:
            pod["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    return made


def resizes(rng: random.Random, release: str) -> Document:
    """Placed pods that are being resized: what they request, what is allocated, and what the kubelet reports."""
    del release
    nodes = [_node(rng, at) for at in range(rng.randint(2, 5))]
    names = [one["metadata"]["name"] for one in nodes]
    placed = []
    for at in range(rng.randint(3, 12)):
        pod = _pod(rng, f"p{at:02}", node=rng.choice(names), priority=rng.choice((0, 1)))
        sizes = ("200m", "500m", "1", "1500m", "2")
        containers = [
            {"name": f"c{i}", "image": "i", "resources": {"requests": {"cpu": rng.choice(sizes), "memory": "256Mi"}}}
            for i in range(rng.randint(1, 3))
        ]
        pod["spec"]["containers"] = containers
        if rng.random() < 0.8:
            pod["status"]["containerStatuses"] = [_reported(rng, one["name"], sizes) for one in containers]
        if "containerStatuses" in pod["status"] and rng.random() < 0.5:
            reason = rng.choice(("Deferred", "Infeasible"))
            condition = {"type": "PodResizePending", "status": "True", "reason": reason}
            pod["status"]["conditions"] = [rng.choice((condition, {"type": "PodResizeInProgress", "status": "True"}))]
        placed.append(pod)
    wanted = ("500m", "1", "2", "3")
    pending = [_pod(rng, f"q{at:02}", rng.choice(wanted), priority=5) for at in range(rng.choice(PENDING))]
    return {"objects": [*_spaces(), *nodes, *placed, *pending]}


def _reported(rng: random.Random, name: Any, sizes: tuple[str, ...]) -> Document:
    made: Document = {"name": name, "image": "i", "imageID": "", "ready": True, "restartCount": 0, "started": True}
    made["resources"] = {"requests": {"cpu": rng.choice(sizes), "memory": "256Mi"}}
    if rng.random() < 0.7:
        made["allocatedResources"] = {"cpu": rng.choice(sizes), "memory": "256Mi"}
    return made


def volumes(rng: random.Random, release: str) -> Document:
    """Claims that are bound, wait for their first consumer, or are provisioned; limits of drivers, and free storage."""
    del release
    nodes = [_node(rng, at) for at in range(rng.randint(2, 7))]
    names = [one["metadata"]["name"] for one in nodes]
    objects: list[Document] = []
    driver = "disk.example.com"
    for name, mode, provisioner in (("now", "Immediate", driver), ("late", "WaitForFirstConsumer", driver),
                                    ("hand", "WaitForFirstConsumer", "kubernetes.io/no-provisioner")):  # fmt: skip
        more: Document = {}
        if name == "late" and rng.random() < 0.4:
            terms = [{"key": ZONE, "values": rng.sample(list(ZONES), 2)}]
            more["allowedTopologies"] = [{"matchLabelExpressions": terms}]
        objects.append(
            _thing("storage.k8s.io/v1", "StorageClass", name, provisioner=provisioner, volumeBindingMode=mode, **more)
        )
    if rng.random() < 0.6:
        objects.append(_thing("storage.k8s.io/v1", "CSIDriver", driver, spec={"storageCapacity": rng.random() < 0.7}))
    for name in names:
        if rng.random() < 0.7:
            drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": rng.randint(1, 3)}, "topologyKeys": [ZONE]}]
            objects.append(_thing("storage.k8s.io/v1", "CSINode", name, spec={"drivers": drivers}))
    objects += [_room(rng, at) for at in range(rng.randint(0, 4))]
    claims = rng.randint(2, 8)
    for at in range(claims):
        objects += _claim(rng, at, driver, names)
    for at in range(rng.randint(0, 3)):
        objects.append(_volume(rng, f"free{at}", "hand", driver, names, claim=None))
    placed = [_pod(rng, f"p{at:02}", "100m", rng.choice(names)) for at in range(rng.randint(1, 8))]
    pending = [_pod(rng, f"q{at:02}", "100m") for at in range(rng.choice(PENDING))]
    for pod in (*placed, *pending):
        pod["metadata"]["namespace"] = "default"
        wanted = rng.sample(range(claims), rng.choice((0, 1, 1, 2)) if claims > 1 else 0)
        pod["spec"]["volumes"] = [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": f"claim{at}"}} for at in wanted]
        if rng.random() < 0.08:
            pod["spec"]["volumes"].append({"name": "gone", "persistentVolumeClaim": {"claimName": "gone"}})
    return {"objects": [*_spaces(), *nodes, *objects, *placed, *pending]}


def _room(rng: random.Random, at: int) -> Document:
    return _thing(
        "storage.k8s.io/v1", "CSIStorageCapacity", f"room{at}", metadata={"namespace": "default"}, storageClassName="late",
        capacity=rng.choice(("1Gi", "5Gi", "50Gi")), nodeTopology={"matchLabels": {ZONE: rng.choice(ZONES)}},
    )  # fmt: skip


def _volume(rng: random.Random, name: str, of: str, driver: str, names: list[str], claim: str | None) -> Document:
    mode = rng.choice(("ReadWriteOnce", "ReadWriteMany"))
    spec: Document = {
        "capacity": {"storage": rng.choice(("1Gi", "5Gi", "10Gi"))}, "accessModes": [mode], "storageClassName": of,
        "csi": {"driver": driver, "volumeHandle": name},
    }  # fmt: skip
    if claim is not None:
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": f"persistentvolumeclaim-{claim}"}
    if rng.random() < 0.5:
        key, values = rng.choice(((HOST, rng.sample(names, 1)), (ZONE, rng.sample(list(ZONES), rng.randint(1, 2)))))
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return _thing("v1", "PersistentVolume", name, spec=spec, status={"phase": "Available" if claim is None else "Bound"})


def _claim(rng: random.Random, at: int, driver: str, names: list[str]) -> Iterator[Document]:
    name, of = f"claim{at}", rng.choice(("now", "late", "hand"))
    spec: Document = {
        "accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))], "storageClassName": of,
        "resources": {"requests": {"storage": rng.choice(("1Gi", "5Gi", "20Gi"))}},
    }  # fmt: skip
    annotations: Document = {}
    status: Document = {"phase": "Pending"}
    if rng.random() < 0.5:
        yield _volume(rng, f"pv{at}", of, driver, names, claim=name)
        spec["volumeName"], status = f"pv{at}", {"phase": "Bound"}
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    metadata = {"namespace": "default", "annotations": annotations}
    yield _thing("v1", "PersistentVolumeClaim", name, metadata=metadata, spec=spec, status=status)


def devices(rng: random.Random, release: str) -> Document:
    """Devices with attributes, capacities and taints; claims with selectors, constraints and alternatives; gates at random."""
    nodes = [_node(rng, at) for at in range(rng.randint(2, 5))]
    api, driver = "resource.k8s.io/v1", "gpu.example.com"
    objects: list[Document] = [
        _thing(api, "DeviceClass", "gpu", spec={"selectors": [_matches(f'device.driver == "{driver}"')]})
    ]
    slices: list[tuple[str, list[Document]]] = []
    lists = rng.random() < 0.3 and _knows(release, "DRAListTypeAttributes")
    distinct = rng.random() < 0.5 and _knows(release, "DRAConsumableCapacity")
    for at, node in enumerate(nodes):
        if rng.random() < 0.8:
            name, held = node["metadata"]["name"], [_device(rng, f"d{i}", lists=lists) for i in range(rng.randint(1, 4))]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": name, "pool": pool, "devices": held}
            objects.append(_thing(api, "ResourceSlice", f"s{at}", spec=spec))
            slices.append((name, held))
    free = [(name, one["name"]) for name, held in slices for one in held]
    rng.shuffle(free)
    pods = []
    for at in range(rng.choice(PENDING)):
        pod = _pod(rng, f"q{at:02}", "100m")
        pod["metadata"]["namespace"] = "default"
        refs = []
        for number in range(rng.choice((1, 1, 2))):
            claim = f"c{at}-{number}"
            made = _thing(
                api,
                "ResourceClaim",
                claim,
                metadata={"namespace": "default"},
                spec={"devices": _requests(rng, lists=lists, distinct=distinct)},
                status={},
            )
            if free and rng.random() < 0.25:
                made["status"] = _allocated(driver, free.pop(), rng, pod)
            objects.append(made)
            refs.append({"name": f"r{number}", "resourceClaimName": claim})
        pod["spec"]["resourceClaims"] = refs
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": one["name"]} for one in refs]
        pods.append(pod)
    found: Document = {"objects": [*_spaces(), *nodes, *objects, *pods]}
    if rng.random() < 0.5:
        found["featureGates"] = gates_of_devices(rng, release)
    return found


def _matches(expression: str) -> Document:
    return {"cel": {"expression": expression}}


def _knows(release: str, gate: str) -> bool:
    found = find_release(release)
    return found is not None and gate in found.gates


def _device(rng: random.Random, name: str, *, lists: bool) -> Document:
    made: Document = {
        "name": name,
        "attributes": {"model": {"string": rng.choice(("a", "b"))}, "index": {"int": rng.randint(0, 3)}},
        "capacity": {"memory": {"value": rng.choice(("8Gi", "16Gi"))}},
    }
    if lists and rng.random() < 0.8:  # one list a device: of two that a release does not support, any is named
        made["attributes"]["tags"] = {"strings": rng.sample(["x", "y", "z"], rng.randint(1, 2))}
    elif lists:
        made["attributes"]["model"] = {"strings": rng.sample(["a", "b"], rng.randint(1, 2))}
    if rng.random() < 0.2:
        made["taints"] = [
            {"key": "worn", "effect": rng.choice(("NoSchedule", "NoExecute")), "timeAdded": "2026-01-01T00:00:00Z"}
        ]
    return made


def _requests(rng: random.Random, *, lists: bool, distinct: bool) -> Document:
    def one() -> Document:
        made: Document = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": rng.choice((1, 1, 2, 3))}
        if rng.random() < 0.12:
            made = {"deviceClassName": "gpu", "allocationMode": "All"}
        if rng.random() < 0.4:
            attribute = 'device.attributes["gpu.example.com"]'
            capacity = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("10Gi")) > 0'
            choices = (f'{attribute}.model == "a"', f"{attribute}.index > 1", capacity)
            of_lists = (f'has({attribute}.tags) && {attribute}.tags.includes("x")', f'"y" in {attribute}.tags') if lists else ()
            made["selectors"] = [_matches(rng.choice((*choices, *of_lists)))]
        if rng.random() < 0.3:
            made["tolerations"] = [{"key": "worn", "operator": "Exists"}]
        return made

    requests: list[Document] = []
    for at in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.25:
            requests.append({"name": f"r{at}", "firstAvailable": [{"name": f"s{i}", **one()} for i in range(2)]})
        else:
            requests.append({"name": f"r{at}", "exactly": one()})
    found: Document = {"requests": requests}
    if rng.random() < 0.25:
        constraint = "distinctAttribute" if distinct and rng.random() < 0.6 else "matchAttribute"
        attribute = rng.choice(("model", "index", "tags") if lists else ("model", "index") if distinct else ("model",))
        found["constraints"] = [{constraint: f"gpu.example.com/{attribute}"}]
    return found


def _allocated(driver: str, device: tuple[str, str], rng: random.Random, pod: Document) -> Document:
    pool, name = device
    result = {"request": "r0", "driver": driver, "pool": pool, "device": name}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pool]}]}]
    status: Document = {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}}
    if rng.random() < 0.5:
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status["reservedFor"] = [rng.choice((user, {"resource": "pods", "name": "other", "uid": "other"}))]
    return status


def shares(rng: random.Random, release: str) -> Document:
    """Devices of two drivers that are shared, consume counters, or both; pools of one name; amounts with policies."""
    nodes = [_node(rng, at) for at in range(rng.randint(2, 4))]
    names = [one["metadata"]["name"] for one in nodes]
    api = "resource.k8s.io/v1"
    newest = _knows(release, "DRAFractionalCapacityRange")
    objects = [_thing(api, "DeviceClass", "any", spec={})]
    held: list[tuple[str, str, Document]] = []
    for name in names:
        for driver in DRIVERS:
            if rng.random() < 0.25:
                continue
            found = [_shared_device(rng, f"d{at}") for at in range(rng.randint(1, 4))]
            # Up to 1.36 pools of one name share their counters, and the node that is tried first decides which of them count.
            pool = name if newest else f"{name}-{driver.partition('.')[0]}"
            objects += _slices(rng, (driver, pool, name), names, found, apart=not release.startswith("1.34"))
            held += [(driver, pool, one) for one in found]
    rng.shuffle(held)
    pods = []
    for at in range(rng.choice(PENDING)):
        pod = _pod(rng, f"q{at:02}", "100m")
        pod["metadata"]["namespace"] = "default"
        claim = f"c{at}"
        spec = {"devices": {"requests": [_share_request(rng, number, release) for number in range(rng.choice((1, 1, 2)))]}}
        made = _thing(api, "ResourceClaim", claim, metadata={"namespace": "default"}, spec=spec, status={})
        if held and rng.random() < 0.3:
            made["status"] = _share_held(rng, *held.pop())
        objects.append(made)
        pod["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimName": claim}]
        pods.append(pod)
    return {"objects": [*_spaces(), *nodes, *objects, *pods], "featureGates": _gates_of_shares(rng, release)}


DRIVERS: Final = ("gpu.example.com", "nic.example.com")
#: What amounts of shared devices may be asked for. The last one is too much for a range, which is an error since 1.37; before,
#: it wraps around there.
AMOUNTS: Final = ("1", "2", "2500m", "3", "0.5", "7", "1001m", "0.0001", "9223372036854775807")


def _gates_of_shares(rng: random.Random, release: str) -> dict[str, bool]:
    """Return gates under which devices are shared; one in four is closed, or open beside them."""
    made = {gate: rng.random() < 0.75 for gate in ("DRAConsumableCapacity", "DRAPartitionableDevices") if _knows(release, gate)}
    if made.get("DRAConsumableCapacity") and _knows(release, "DRAFractionalCapacityRange"):
        made["DRAFractionalCapacityRange"] = rng.random() < 0.5
    if not made.get("DRAPartitionableDevices") and _knows(release, "DRADeviceCompatibilityGroups"):
        made["DRADeviceCompatibilityGroups"] = False
    return made


def _shared_device(rng: random.Random, name: str) -> Document:
    policy: Document = {}
    if rng.random() < 0.5:
        least, step = rng.choice((("1", "1"), ("0.5", "0.5"), ("1", "500m"), ("2", "3"), ("1500m", "0.25")))
        policy = {"default": rng.choice((least, "3")), "validRange": {"min": least, "step": step}}
        if rng.random() < 0.5:
            policy["validRange"]["max"] = "8"
    elif rng.random() < 0.3:
        policy = {"default": "2", "validValues": ["1", "2", "4"]}
    amount: Document = {"value": rng.choice(("4", "8", "8500m"))}
    made: Document = {"name": name, "capacity": {"units": {**amount, **({"requestPolicy": policy} if policy else {})}}}
    if rng.random() < 0.6:
        made["allowMultipleAllocations"] = True
    if rng.random() < 0.5:
        made["consumesCounters"] = [{"counterSet": "set", "counters": {"slots": {"value": str(rng.randint(1, 2))}}}]
    return made


def _slices(
    rng: random.Random, of: tuple[str, str, str], names: list[str], found: list[Document], *, apart: bool
) -> Iterator[Document]:
    """Yield the slices of a driver's pool for a node: its devices, and if they need some its counters, apart since 1.35."""
    driver, pool, node = of
    counters = [{"name": "set", "counters": {"slots": {"value": str(rng.randint(1, 4))}}}]
    needs = any("consumesCounters" in one for one in found)
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": 2 if needs and apart else 1}
    own: Document = {"nodeName": node} if rng.random() < 0.8 else {"allNodes": True}
    short = driver.partition(".")[0]
    together = {"sharedCounters": counters} if needs and not apart else {}
    spec = {"driver": driver, "pool": of_pool, "devices": found, **own, **together}
    yield _thing("resource.k8s.io/v1", "ResourceSlice", f"{short}-{node}", spec=spec)
    if needs and apart:
        where: Document = rng.choice((own, {"nodeName": rng.choice(names)}, {"allNodes": True}))
        spec = {"driver": driver, "pool": of_pool, "sharedCounters": counters, **where}
        yield _thing("resource.k8s.io/v1", "ResourceSlice", f"{short}-{node}-counters", spec=spec)


def _share_request(rng: random.Random, number: int, release: str) -> Document:
    newest = _knows(release, "DRAFractionalCapacityRange")
    exactly: Document = {
        "deviceClassName": "any",
        "allocationMode": "ExactCount",
        "count": rng.choice((1, 1, 2, 3, 20 if newest else 2)),
    }
    if rng.random() < 0.2:
        exactly = {"deviceClassName": "any", "allocationMode": "All"}
    amounts = AMOUNTS if newest else AMOUNTS[:-1]
    if rng.random() < 0.5:
        exactly["capacity"] = {"requests": {rng.choice(("units", "units", "units", "other")): rng.choice(amounts)}}
    if rng.random() < 0.4:
        exactly["selectors"] = [_matches(f'device.driver == "{rng.choice(DRIVERS)}"')]
    if rng.random() < 0.03 and _knows(release, "DRADerivedAttributes"):
        exactly["derivedAttributes"] = [{"name": "example.com/half", "expression": "1"}]
    return {"name": f"r{number}", "exactly": exactly}


def _share_held(rng: random.Random, driver: str, pool: str, device: Document) -> Document:
    """Return the status of a claim that holds a device, or a share of it, which need not say what it consumes."""
    result: Document = {"request": "r0", "driver": driver, "pool": pool, "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        result["shareID"] = "00000000-0000-4000-8000-000000000001"
        if rng.random() < 0.8:
            result["consumedCapacity"] = {"units": rng.choice(("1", "2", "1500m"))}
    return {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "name": "o", "uid": "o"}]}


#: The kinds, by name.
SHAPES: Final[Mapping[str, Callable[[random.Random, str], Document]]] = {
    "racks": racks, "crowds": crowds, "nominations": nominations, "volumes": volumes, "devices": devices, "shares": shares,
    "resizes": resizes,
}  # fmt: skip


def cluster_of(shape: str, seed: int, release: str) -> Document:
    """Return the scenario of a kind and a seed; one in four places its pods one after the other."""
    rng = random.Random(f"{shape} {release} {seed}")  # noqa: S311  draws no secrets
    made = SHAPES[shape](rng, release)
    # API servers and the real program list pods by name, which decides ties of preemption.
    pods = sorted((one for one in made["objects"] if one["kind"] == "Pod"), key=listed)
    objects = [*(one for one in made["objects"] if one["kind"] != "Pod"), *pods]
    found: Document = {"name": f"{shape}-{seed}", "family": shape, "release": release, **made, "objects": objects}
    if shape != "crowds" and rng.random() < 0.25:
        found["mode"] = "sequence"
    if shape not in {"devices", "shares"} and rng.random() < 0.3:
        found["featureGates"] = gates_of_any(rng, release)
    return found

"""Rules that changed between releases and that no recording exercises, on the smallest cluster that shows them."""

from __future__ import annotations

import pytest

from tools.recordings.answers import answer

GIB = 1 << 30


def node(name, **allocatable):
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", **{key.replace("__", "-"): one for key, one in allocatable.items()}}
    labels = {"kubernetes.io/hostname": name}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def with_image(held):
    return {**held, "status": {**held["status"], "images": [{"names": ["registry/model:1"], "sizeBytes": GIB}]}}


def container(name="c", **fields):
    return {"name": name, "image": "app:1", **fields}


def pod(name, on="", containers=None, status=None, **spec):
    made = {"containers": containers or [container()], **({"nodeName": on} if on else {}), **spec}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": made,
        "status": status or {},
    }


def sidecar(**fields):
    return [container("s", restartPolicy="Always", **fields)]


PORT = [{"containerPort": 80, "hostPort": 80}]


def claim(name, volume="", **spec):
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    meta = {"name": name, "namespace": "default", "uid": name, "annotations": bound}
    made = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "late", **spec}
    phase = {"phase": "Bound" if volume else "Pending"}
    return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**made, "volumeName": volume}, "status": phase}


def volume(name, **source):
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "late", **source}
    phase = {"phase": "Bound" if "claimRef" in source else "Available"}
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": phase}


LATE = {
    "kind": "StorageClass", "metadata": {"name": "late"}, "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}  # fmt: skip


def csi_volume(name):
    ref = {"namespace": "default", "name": f"of-{name}"}
    return volume(name, csi={"driver": "disk", "volumeHandle": name}, claimRef=ref)


def csi_node(name, limit=None, driver="disk"):
    driver = {"name": driver, "nodeID": name, **({} if limit is None else {"allocatable": {"count": limit}})}
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [driver]}}


def uses(name):
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def bound(*names):
    return [LATE, *(part for name in names for part in (csi_volume(name), claim(f"of-{name}", name)))]


def attached(name, on):
    source = {"persistentVolumeName": name}
    spec = {"attacher": "disk", "nodeName": on, "source": source}
    return {"kind": "VolumeAttachment", "metadata": {"name": f"at-{name}"}, "spec": spec}


def device_claim(name, allocated=False):
    result = {"request": "r", "driver": "d", "pool": "n0", "device": "dev-0"}
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    status = {"allocation": {"devices": {"results": [result]}}} if allocated else {}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": spec,
        "status": status,
    }


DEVICES = [
    {"kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}},
    {
        "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {
            "driver": "d", "nodeName": "n0", "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev-0"}, {"name": "dev-1"}],
        },
    },
]  # fmt: skip


def devices_of(*devices, **spec):
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 2 if spec else 1}
    held = {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n0", "pool": pool}}
    counters = {**held, "metadata": {"name": "c"}, "spec": {**held["spec"], **spec}}
    return [{**held, "spec": {**held["spec"], "devices": list(devices)}}, *([counters] if spec else [])]


def several(count, held):
    exactly = {**held["spec"]["devices"]["requests"][0]["exactly"], "count": count}
    return {**held, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


def backs_foo(device_class):
    return {**device_class, "spec": {"extendedResourceName": "example.com/foo"}}


def requesting(**requests):
    return container(resources={"requests": requests, "limits": requests})


SLOT = [{"counterSet": "c", "counters": {"slots": {"value": "1"}}}]
TAINT = [{"key": "bad", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
SHARED = {
    "name": "dev", "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "10", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}},
}  # fmt: skip


def named(device):
    return {"name": device, "attributes": {"name": {"string": device}}}


def shared_by(held):
    share = {
        "request": "r", "driver": "d", "pool": "n0", "device": "dev", "shareID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "consumedCapacity": {"memory": "1"},
    }  # fmt: skip
    user = {"resource": "pods", "name": "other", "uid": "other"}
    return {**held, "status": {"allocation": {"devices": {"results": [share]}}, "reservedFor": [user]}}


def only(device, held):
    chosen = [{"cel": {"expression": f"device.attributes['d'].name == '{device}'"}}]
    exactly = {**held["spec"]["devices"]["requests"][0]["exactly"], "selectors": chosen}
    return {**held, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


def incomplete(held):
    return {**held, "spec": {**held["spec"], "pool": {**held["spec"]["pool"], "resourceSliceCount": 2}}}


def with_selector(device_class):
    return {**device_class, "spec": {"selectors": [{"cel": {"expression": 'device.attributes["d"].model == "x"'}}]}}


FAILED = 'running "DynamicResources" filter plugin: class any: selector #0'
NO_KEY = "CEL runtime error: no such key: model"
ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
)
CLAIMS = [{"name": "a", "resourceClaimName": "a"}, {"name": "b", "resourceClaimName": "b"}]
EBS = [{"name": "v", "awsElasticBlockStore": {"volumeID": "one"}}]
OTHER_EBS = [{"name": "v", "awsElasticBlockStore": {"volumeID": "two"}}]
ONE_GCE, OTHER_GCE = ([{"name": "v", "gcePersistentDisk": {"pdName": name}}] for name in ("one", "two"))
ONE_PORTWORX, OTHER_PORTWORX = ([{"name": "v", "portworxVolume": {"volumeID": name}}] for name in ("one", "two"))
RESIZED = {
    "containerStatuses": [
        {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}, "image": "", "imageID": ""}
    ]
}


def reasons(result):
    return sorted({reason for status in (result.get("filter") or {}).values() for reason in status["reasons"]})


def image_score(result):
    return result["scores"]["n0"]["ImageLocality"]


def nominated(result):
    return result["postFilter"]["nominated"]


def fault(result):
    return result.get("error", "")


def score_of_fit(result):
    return result["scores"]["n0"]["NodeResourcesFit"]


def cpu(amount):
    return {"resources": {"requests": {"cpu": amount, "memory": "0"}}}


NO_ALLOCATION = (
    'running Score plugins: plugin "DynamicResources" failed with: number of allocations 1 is smaller than number of claims'
)
NO_ATTRIBUTES = (
    'running "VolumeBinding" filter plugin: unsupported volumeAttributesClassName is set on claim default/c when the '
    "feature-gate VolumeAttributesClass is disabled"
)
NOT_HELPFUL = "Preemption is not helpful for scheduling"
LOCAL = {
    "local": {"path": "/x"},
    "claimRef": {"namespace": "default", "name": "c"},
    "nodeAffinity": {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}]}]
        }
    },
}


def labelled(held, key):
    return {**held, "metadata": {**held["metadata"], "labels": {**held["metadata"].get("labels", {}), key: "a"}}}


def victim(name, on, priority, guarded=False):
    held = pod(name, on, [container(**cpu("1"))], priority=priority)
    return labelled(held, "guarded") if guarded else held


BUDGET = {
    "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"guarded": "a"}}}, "status": {"disruptionsAllowed": 0},
}  # fmt: skip


def zoned(key):
    held = volume("v", local={"path": "/x"}, claimRef={"namespace": "default", "name": "c"})
    return LATE, {**held, "metadata": {**held["metadata"], "labels": {key: "a"}}}, claim("c", "v")


def on_node(name):
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


#: What changed → the cluster, what to look at, and the answers: of the last release with the old rule, of the first without.
RULES = {
    "image volumes count": (
        [with_image(node("n0")), pod("p", volumes=[{"name": "v", "image": {"reference": "registry/model:1"}}])],
        image_score, ("1.35.7", 0), ("1.36", 100),
    ),
    "image volumes divide the score": (
        [with_image(node("n0")), pod("p", volumes=[{"name": "v", "image": {"reference": "registry/model:1"}}])],
        image_score, ("1.36", 100), ("1.37", 50),
    ),
    "a selector that fails names the device": (
        [node("n0"), with_selector(DEVICES[0]), DEVICES[1], device_claim("a"), pod("p", resourceClaims=CLAIMS[:1])],
        reasons, ("1.36", [f"{FAILED}: {NO_KEY}"]), ("1.37", [f"{FAILED} on device d/n0/dev-0: {NO_KEY}{ADVICE}"]),
    ),
    "a claim that is allocated beside one that is not": (
        [node("n0"), *DEVICES, device_claim("a", allocated=True), device_claim("b"), pod("p", resourceClaims=CLAIMS)],
        fault,
        ("1.35.4", NO_ALLOCATION),
        ("1.35.7", ""),
    ),
    "a refused device releases its counters": (
        [node("n0"), DEVICES[0], device_claim("a"), pod("p", resourceClaims=CLAIMS[:1]),
         *devices_of({"name": "a", "consumesCounters": SLOT, "taints": TAINT}, {"name": "b", "consumesCounters": SLOT},
                     sharedCounters=[{"name": "c", "counters": {"slots": {"value": "1"}}}])],
        reasons, ("1.36.2", ["cannot allocate all claims"]), ("1.36", []),
    ),
    "all slices of a pool are there": (
        [node("n0"), DEVICES[0], incomplete(DEVICES[1]), device_claim("a"), pod("p", resourceClaims=CLAIMS[:1])],
        reasons, ("1.34.7", []), ("1.35.4", ["cannot allocate all claims"]),
    ),
    "ports of sidecars count": (
        [node("n0"), pod("held", "n0", initContainers=sidecar(ports=PORT)), pod("p", containers=[container(ports=PORT)])],
        reasons, ("1.33.3", []), ("1.34.1", ["node(s) didn't have free ports for the requested pod ports"]),
    ),
    "volume attributes classes are supported": (
        [node("n0"), LATE, volume("v", local={"path": "/x"}), claim("c", volumeAttributesClassName="gold"),
         pod("p", volumes=uses("c"))],
        reasons,
        ("1.33.3", [NO_ATTRIBUTES]),
        ("1.34.1", ["node(s) didn't find available persistent volumes to bind"]),
    ),
    "what the kubelet reports of a resize counts": (
        [node("n0"), pod("held", "n0", containers=[container(**cpu("1"))], status=RESIZED),
         pod("p", containers=[container(**cpu("2"))])],
        reasons, ("1.32.5", []), ("1.33.3", ["Insufficient cpu"]),
    ),
    "a node states no volume limit itself": (
        [node("n0", **{"attachable-volumes-csi-disk": "1"}), csi_node("n0"), *bound("one", "two"),
         pod("held", "n0", volumes=uses("of-one")), pod("p", volumes=uses("of-two"))],
        reasons, ("1.31.8", ["node(s) exceed max volume count"]), ("1.32.5", []),
    ),
    "attachments without a pod count": (
        [node("n0"), csi_node("n0", limit=1), *bound("one", "two"), attached("one", "n0"), pod("p", volumes=uses("of-two"))],
        reasons, ("1.31.8", []), ("1.32.5", ["node(s) exceed max volume count"]),
    ),
    "sidecars of placed pods count in scores": (
        [node("n0"), node("n1"), pod("held", "n0", containers=[container(**cpu("1"))], initContainers=sidecar(**cpu("1"))),
         pod("p", containers=[container(**cpu("1"))])],
        score_of_fit, ("1.31.8", 75), ("1.32.5", 62),
    ),
    "in-tree disks are not limited": (
        [node("n0", **{"attachable-volumes-aws-ebs": "1"}), pod("held", "n0", volumes=EBS), pod("p", volumes=OTHER_EBS)],
        reasons, ("1.30.10", ["node(s) exceed max volume count"]), ("1.31.8", []),
    ),
    "images of init containers count": (
        [with_image(node("n0")), pod("p", initContainers=[{"name": "i", "image": "registry/model:1"}])],
        image_score, ("1.29.14", 0), ("1.30.10", 50),
    ),
    "NodeAffinity skips a pod without preferences": (
        [node("n0"), pod("p")], lambda result: result["scores"]["n0"].get("NodeAffinity"), ("1.29.14", 0), ("1.30.10", None),
    ),
    "VolumeBinding skips a pod while its gate is off": (
        [node("n0"), pod("p")], lambda result: result["scores"]["n0"].get("VolumeBinding"), ("1.29.14", 0), ("1.30.10", None),
    ),
    "all nodes with an image count": (
        [with_image(node("n0")), with_image(node("n1")), pod("p", containers=[{"name": "c", "image": "registry/model:1"}])],
        image_score, ("1.28.8", 50), ("1.29.14", 100),
    ),
    "a stable label stands for the beta label of a volume": (
        [labelled(node("n0"), "topology.kubernetes.io/zone"), *zoned("failure-domain.beta.kubernetes.io/zone"),
         pod("p", volumes=uses("c"))],
        reasons, ("1.28.8", ["node(s) had no available volume zone"]), ("1.29.14", []),
    ),
    "a local volume does not narrow the nodes": (
        [node("n0"), node("n1"), LATE, volume("v", **LOCAL), claim("c", "v"), pod("p", volumes=uses("c"))],
        lambda result: (result.get("preFilterNodes"), reasons(result)),
        ("1.28.8", (["n0"], [])), ("1.29.14", (None, ["node(s) had volume node affinity conflict"])),
    ),
    "a node that does not exist may be named": (
        [node("n0"), pod("p", affinity=on_node("gone"))], fault,
        ("1.28.8", 'nodeinfo not found for node name "gone"'), ("1.29.14", ""),
    ),
    "a message ends with one period": (
        [node("n0", cpu="1"), pod("p", containers=[container(**cpu("2"))])],
        lambda result: result["message"].endswith(".."), ("1.28.8", True), ("1.29.14", False),
    ),
    "no pod is evicted on a node that PreFilter left out": (
        [node("n0", cpu="1"), node("n1"), pod("p", affinity=on_node("n0"), containers=[container(**cpu("2"))])],
        lambda result: result["postFilter"]["message"],
        ("1.28.8", "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."),
        ("1.29.14", f"preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 {NOT_HELPFUL}."),
    ),
    "Portworx volumes count for their driver on every node with a CSINode": (
        [node("n0"), csi_node("n0", 1, "pxd.portworx.com"), pod("held", "n0", volumes=ONE_PORTWORX),
         pod("p", volumes=OTHER_PORTWORX)],
        reasons, ("1.35.7", []), ("1.36", ["node(s) exceed max volume count"]),
    ),
    "disks of Google Compute Engine count for their driver on every node with a CSINode": (
        [node("n0"), csi_node("n0", 1, "pd.csi.storage.gke.io"), pod("held", "n0", volumes=ONE_GCE),
         pod("p", volumes=OTHER_GCE)],
        reasons, ("1.27.16", []), ("1.28.8", ["node(s) exceed max volume count"]),
    ),
    "their limit of a node counts on no node with a CSINode": (
        [node("n0", **{"attachable-volumes-gce-pd": "1"}), csi_node("n0"), pod("held", "n0", volumes=ONE_GCE),
         pod("p", volumes=OTHER_GCE)],
        reasons, ("1.27.16", ["node(s) exceed max volume count"]), ("1.28.8", []),
    ),
    "victims that exceed a budget are compared with the others": (
        [node("n0", cpu="2"), node("n1", cpu="2"), BUDGET, victim("a", "n0", 1, guarded=True), victim("b", "n0", 5),
         victim("c", "n1", 3, guarded=True), victim("d", "n1", 2), pod("p", containers=[container(**cpu("2"))], priority=10)],
        nominated, ("1.28.8", "n0"), ("1.29.14", "n1"),
    ),
    "a resource that the pod does not request may be overcommitted": (
        [node("n0", cpu="1"), pod("held", "n0", containers=[container(**cpu("2"))]),
         pod("p", containers=[container(resources={"requests": {"memory": "1Gi"}})])],
        reasons, ("1.27.16", ["Insufficient cpu"]), ("1.28.8", []),
    ),
    "plugins skip a pod that no constraint or term concerns": (
        [node("n0"), pod("p")],
        lambda result: [result["scores"]["n0"].get(name) for name in ("PodTopologySpread", "InterPodAffinity")],
        ("1.27.16", [200, 0]), ("1.28.8", [None, None]),
    ),
    "a container may be a sidecar": (
        [node("n0"), pod("p", initContainers=sidecar())], lambda result: result["feasible"],
        ("1.27.16", ["n0"]), ("1.28.8", []),
    ),
}  # fmt: skip
LIMITS_ALONE = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"plugins": {"multiPoint": {"disabled": [{"name": f"Volume{one}"} for one in ("Restrictions", "Binding", "Zone")]}}}
    ],
}
NO_CLAIM = 'looking up PVC default/c: persistentvolumeclaim "c" not found'
#: What changed under a configuration or with gates → these, the cluster, what to look at, and the answers, as above.
WITH_SETTINGS = {
    "a missing claim rejects the pod": (
        {"config": LIMITS_ALONE}, [node("n0"), csi_node("n0", limit=1), pod("p", volumes=uses("c"))],
        lambda result: list((result.get("filter") or {}).values()),
        ("1.29.14", [{"code": "Error", "plugin": "EBSLimits", "reasons": [f'running "EBSLimits" filter plugin: {NO_CLAIM}']}]),
        ("1.30.10", [{"code": "UnschedulableAndUnresolvable", "plugin": "EBSLimits", "reasons": [NO_CLAIM]}]),
    ),
    "a request takes one share of a device": (
        {"featureGates": {"DRAConsumableCapacity": True}},
        [node("n0"), DEVICES[0], *devices_of(SHARED), several(2, device_claim("a")), pod("p", resourceClaims=CLAIMS[:1])],
        reasons, ("1.35.7", []), ("1.36", ["cannot allocate all claims"]),
    ),
    "shares that others hold use counters": (
        {"featureGates": {"DRAConsumableCapacity": True, "DRAPartitionableDevices": True}},
        [node("n0"), DEVICES[0], shared_by(device_claim("held")), only("whole", device_claim("a")),
         *devices_of({**SHARED, **named("dev"), "consumesCounters": SLOT}, {**named("whole"), "consumesCounters": SLOT},
                     sharedCounters=[{"name": "c", "counters": {"slots": {"value": "1"}}}]),
         pod("p", resourceClaims=CLAIMS[:1])],
        reasons, ("1.35.7", []), ("1.36", ["cannot allocate all claims"]),
    ),
    "devices back a resource of which a node has none": (
        {"featureGates": {"DRAExtendedResource": True}},
        [node("n0", **{"example.com/foo": "0"}), backs_foo(DEVICES[0]), DEVICES[1],
         pod("p", containers=[requesting(**{"example.com/foo": "1"})])],
        reasons, ("1.34.7", ["Insufficient example.com/foo"]), ("1.35.7", []),
    ),
    "only resources that devices back are left to them": (
        {"featureGates": {"DRAExtendedResource": True}},
        [node("n0"), DEVICES[0], pod("p", containers=[requesting(**{"hugepages-2Mi": "2Mi"})])],
        reasons, ("1.34.7", []), ("1.35.7", ["Insufficient hugepages-2Mi"]),
    ),
    "devices of a class without a name of its own": (
        {"featureGates": {"DRAExtendedResource": True}},
        [node("n0"), backs_foo(DEVICES[0]), DEVICES[1],
         pod("p", containers=[requesting(**{"deviceclass.resource.kubernetes.io/any": "3"})])],
        reasons, ("1.34.7", []), ("1.35.7", ["cannot allocate all claims"]),
    ),
    "claims for one pod count": (
        {"featureGates": {"ReadWriteOncePod": False}},
        [node("n0"), LATE, csi_volume("one"), claim("of-one", "one", accessModes=["ReadWriteOncePod"]),
         pod("held", "n0", volumes=uses("of-one")), pod("p", volumes=uses("of-one"))],
        reasons, ("1.28.8", []), (None, None),
    ),
    "PreFilter rejects sidecars while their gate is off": (
        {"featureGates": {"SidecarContainers": False}}, [node("n0"), pod("p", initContainers=sidecar())],
        lambda result: (result.get("preFilter") or {}).get("code"),
        ("1.29.14", None), ("1.30.10", "UnschedulableAndUnresolvable"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", [*RULES, *WITH_SETTINGS])
def test_a_rule_ends_with_its_release(rule):
    settings, objects, read, before, after = WITH_SETTINGS[rule] if rule in WITH_SETTINGS else ({}, *RULES[rule])
    for release, expected in (before, after):
        if release is None:  # it has not the gate
            continue
        (result,) = answer({"name": rule, "release": release, "objects": objects, **settings})["results"]
        assert read(result) == expected, release


@pytest.mark.parametrize(("is_open", "fits"), [(True, []), (False, ["n0"])])
def test_min_domains_count_while_their_gate_is_open(is_open, fits):
    spread = {
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
        "labelSelector": {"matchLabels": {"app": "a"}},
    }  # fmt: skip
    held, asked = pod("held", "n0"), pod("p", topologySpreadConstraints=[spread])
    for one in (held, asked):
        one["metadata"]["labels"] = {"app": "a"}
    gates = {"MinDomainsInPodTopologySpread": is_open}
    (result,) = answer({"name": "p", "release": "1.29", "objects": [node("n0"), held, asked], "featureGates": gates})["results"]
    assert result["feasible"] == fits

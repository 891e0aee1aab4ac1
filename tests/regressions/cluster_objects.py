"""Objects of a cluster for tests that play on a stage: each function makes one by the API, and sees that it was taken."""

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
VOLUMES, CLAIMS = "/api/v1/persistentvolumes", "/api/v1/namespaces/default/persistentvolumeclaims"
STORAGE = "/apis/storage.k8s.io/v1"
CAPACITIES = f"{STORAGE}/namespaces/default/csistoragecapacities"
DEVICES = "/apis/resource.k8s.io/v1"
MERGE = "application/merge-patch+json"
BOUND = {"pv.kubernetes.io/bind-completed": "true"}
SIZE = {"storage": "1Mi"}


def create(world, path, kind, version="v1", **parts):
    made = world.api.do("POST", path, {"apiVersion": version, "kind": kind, **parts})
    assert made is not None, f"{kind} was refused"
    return made


def patch(world, path, **parts):
    """Change what is there."""
    assert world.api.do("PATCH", path, parts, media_type=MERGE) is not None, f"{path}: the change was refused"


def drop(world, path):
    assert world.api.do("DELETE", path) is not None, f"{path} cannot be deleted"


def node(world, name, labels=None, taints=(), unschedulable=False, features=(), **amounts):
    """Make a node of 4 CPUs, or of these amounts."""
    held = {"cpu": "4", "memory": "8Gi", "pods": "20", **{key.replace("_", "."): str(value) for key, value in amounts.items()}}
    spec = {"taints": list(taints), "unschedulable": unschedulable}
    status = {"allocatable": held, "capacity": held, "declaredFeatures": list(features)}
    return create(world, NODES, "Node", metadata={"name": name, "labels": labels or {}}, spec=spec, status=status)


def label(world, name, **labels):
    """Set labels of a node; None takes one off."""
    patch(world, f"{NODES}/{name}", metadata={"labels": labels})


def taint(world, name, *taints):
    patch(world, f"{NODES}/{name}", spec={"taints": list(taints)})


def grow(world, name, **amounts):
    """Give a node other amounts of what it has."""
    held = {key: str(value) for key, value in amounts.items()}
    patch(world, f"{NODES}/{name}/status", status={"allocatable": held, "capacity": held})


def no_schedule(key, value=""):
    return {"key": key, "value": value, "effect": "NoSchedule"}


def namespace(world, name, **labels):
    return create(world, "/api/v1/namespaces", "Namespace", metadata={"name": name, "labels": labels})


def pod(world, name, labels=None, namespace="default", **spec):
    """Make a pod that asks for nothing but what it says, with ``cpu=`` or ``requests=`` for amounts."""
    requests = spec.pop("requests", {})
    if "cpu" in spec:
        requests = {"cpu": spec.pop("cpu"), **requests}
    limits = {key: amount for key, amount in requests.items() if "/" in key}
    container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}, **spec.pop("container", {})}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    return create(world, path, "Pod", metadata=metadata, spec={"containers": [container], **spec})


def using(*claims):
    """Spec of a pod that uses these claims."""
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)]
    return {"volumes": volumes}


def volume(world, name, labels=None, klass="", within=None, driver="", modes=("ReadWriteMany",)):
    """Make a volume. ``within``: the key and the value of the label that its nodes have."""
    source = {"csi": {"driver": driver, "volumeHandle": f"{name}-handle"}} if driver else {"hostPath": {"path": "/data"}}
    spec = {"capacity": SIZE, "accessModes": list(modes), "storageClassName": klass, **source}
    if within is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [within_term(*within)]}]}}
    return create(world, VOLUMES, "PersistentVolume", metadata={"name": name, "labels": labels or {}}, spec=spec)


def within_term(key, value):
    return {"key": key, "operator": "In", "values": [value]}


def claim(world, name, bound_to="", klass="", modes=("ReadWriteMany",)):
    metadata = {"name": name, "namespace": "default", "annotations": BOUND if bound_to else {}}
    spec = {"accessModes": list(modes), "resources": {"requests": SIZE}, "storageClassName": klass}
    if bound_to:
        spec["volumeName"] = bound_to
    return create(world, CLAIMS, "PersistentVolumeClaim", metadata=metadata, spec=spec)


def bind_claim(world, name, to):
    patch(world, f"{CLAIMS}/{name}", metadata={"annotations": BOUND}, spec={"volumeName": to})


def storage_class(world, name, mode="WaitForFirstConsumer", zones=(), **labels):
    allowed = [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": list(zones)}]}] if zones else []
    return create(
        world, f"{STORAGE}/storageclasses", "StorageClass", "storage.k8s.io/v1", metadata={"name": name, "labels": labels},
        provisioner="p", volumeBindingMode=mode, allowedTopologies=allowed,
    )  # fmt: skip


def csi_node(world, name, **counts):
    """Make a node's list of drivers, and how many volumes each takes; underscores stand for dots."""
    drivers = [
        {"name": driver.replace("_", "."), "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}
        for driver, count in counts.items()
    ]
    return create(
        world, f"{STORAGE}/csinodes", "CSINode", "storage.k8s.io/v1", metadata={"name": name}, spec={"drivers": drivers}
    )


def csi_driver(world, name, capacity):
    return create(
        world,
        f"{STORAGE}/csidrivers",
        "CSIDriver",
        "storage.k8s.io/v1",
        metadata={"name": name},
        spec={"storageCapacity": capacity},
    )


def capacity(world, name, klass, amount):
    return create(
        world, CAPACITIES, "CSIStorageCapacity", "storage.k8s.io/v1",
        metadata={"name": name, "namespace": "default"}, storageClassName=klass, capacity=amount, nodeTopology={},
    )  # fmt: skip


def attachment(world, name, node, driver, volume):
    return create(
        world, f"{STORAGE}/volumeattachments", "VolumeAttachment", "storage.k8s.io/v1", metadata={"name": name},
        spec={"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}, status={"attached": True},
    )  # fmt: skip


def device_class(world, name, resource=None):
    spec = {} if resource is None else {"extendedResourceName": resource}
    return create(world, f"{DEVICES}/deviceclasses", "DeviceClass", "resource.k8s.io/v1", metadata={"name": name}, spec=spec)


def near(key, topology, kind="podAffinity", **more):
    """Spec of a pod that must be near pods that have this label, or away from them."""
    term = {"topologyKey": topology, "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def away(key, topology, **more):
    return near(key, topology, "podAntiAffinity", **more)


def on_nodes(key, value):
    """Spec of a pod that goes where nodes have this label only."""
    terms = [{"matchExpressions": [within_term(key, value)]}]
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}


def spread(key, topology, **more):
    """Spec of a pod that is spread with those that have this label."""
    selector = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    return {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}
    ]}  # fmt: skip


def port(number, ip="", protocol="TCP"):
    return {"container": {"ports": [{"containerPort": 80, "hostPort": number, "hostIP": ip, "protocol": protocol}]}}


def tolerating(key, **more):
    return {"tolerations": [{"key": key, "operator": "Exists", **more}]}


def tolerate(world, name, key):
    """Add a toleration to a pod; what it has cannot be taken off it."""
    held = world.api.do("GET", f"{PODS}/{name}")["spec"].get("tolerations", [])
    patch(world, f"{PODS}/{name}", spec={"tolerations": [*held, *tolerating(key)["tolerations"]]})


GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default"


def groups_at(world):
    """Return the version in which the world serves groups of pods."""
    return "v1beta1" if world.api.store.gates.emulated.groups_as_one else "v1alpha2"


def groups_path(world, name=""):
    """Return the path of the groups of pods, or of one."""
    path = f"/apis/scheduling.k8s.io/{groups_at(world)}/namespaces/default/podgroups"
    return f"{path}/{name}" if name else path


def pod_group(world, name, least=None, together="", parent="", **spec):
    """Make a group, of which so many go together or not at all, on nodes that share the label ``together``."""
    policy = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    if together:
        spec["schedulingConstraints"] = {"topology": [{"key": together}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    spec, version = {"schedulingPolicy": policy, **spec}, f"scheduling.k8s.io/{groups_at(world)}"
    return create(world, groups_path(world), "PodGroup", version, metadata={"name": name}, spec=spec)


def group_of_groups(world, name, least=None, together="", parent="", **spec):
    """Make a group of groups, of which so many go together or not at all."""
    policy = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    if together:
        spec["schedulingConstraints"] = {"topology": [{"key": together}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    spec = {"schedulingPolicy": policy, "workloadRef": {"workloadName": "w", "templateName": "t"}, **spec}
    version = "scheduling.k8s.io/v1alpha3"
    path = f"/apis/{version}/namespaces/default/compositepodgroups"
    return create(world, path, "CompositePodGroup", version, metadata={"name": name}, spec=spec)


def members(world, group, *names, cpu="1", **spec):
    """Make pods of a group."""
    for name in names:
        pod(world, name, cpu=cpu, schedulingGroup={"podGroupName": group}, **spec)

"""An operator in kopf: it creates as many pods as a Fleet asks for, and counts in its status those that have a node.

pip install kopf kubernetes
kubectl apply -f definition.yaml
kopf run --all-namespaces --standalone operator.py
"""

import kopf
import kubernetes


@kopf.on.startup()
def connect(settings, **_):
    kubernetes.config.load_kube_config()
    settings.posting.level = 30  # events for warnings only


def pod(name, fleet, cpu):
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"fleet": fleet}},
        "spec": {"containers": [{"name": "ship", "image": "ship", "resources": {"requests": {"cpu": cpu}}}]},
    }  # fmt: skip
    kopf.adopt(body)
    return body


def ships(name, namespace):
    return kubernetes.client.CoreV1Api().list_namespaced_pod(namespace, label_selector=f"fleet={name}").items


@kopf.on.create("fleets.shop.example.com")
@kopf.on.update("fleets.shop.example.com", field="spec")
def resize(name, namespace, spec, **_):
    core = kubernetes.client.CoreV1Api()
    wanted = {f"{name}-{number}" for number in range(spec["ships"])}
    held = {one.metadata.name for one in ships(name, namespace)}
    for one in sorted(wanted - held):
        core.create_namespaced_pod(namespace, pod(one, name, spec["cpu"]))
    for one in sorted(held - wanted):
        core.delete_namespaced_pod(one, namespace, grace_period_seconds=0)
    return {"ships": spec["ships"]}


@kopf.timer("fleets.shop.example.com", interval=0.5)
def count(name, namespace, patch, **_):
    patch.status["placed"] = sum(one.spec.node_name is not None for one in ships(name, namespace))


@kopf.on.delete("fleets.shop.example.com")
def disband(name, namespace, logger, **_):
    logger.warning("fleet %s leaves %d ships to the garbage collector", name, len(ships(name, namespace)))

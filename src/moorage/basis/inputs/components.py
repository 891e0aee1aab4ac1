"""Components beside the scheduler, as a cluster's own objects set them up: Kueue, Karpenter, cluster-autoscaler, descheduler.

A config map holds the configuration file of such a component, and a workload its command line and environment. The reader of
clusters finds both: the file is read as if it were given itself, the command line is kept as a ``Component``.

Source  the manifests and charts that the four projects ship
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.custom_objects import custom_type
from moorage.api.reading.manifests import read_yaml
from moorage.basis.inputs.objects import FoundObject, plain_object
from moorage.errors import InputError

#: The API groups of configuration files that a config map may hold: those of Kueue and of the descheduler.
_FILES: Final = ("config.kueue.x-k8s.io/", "descheduler/")
#: The components by what their images are called, without registry, tag and digest.
_IMAGES: Final = {
    "kueue": re.compile(r"(^|/)kueue$"),
    "karpenter": re.compile(r"(^|/)karpenter(/controller)?$"),
    "cluster-autoscaler": re.compile(r"(^|/)cluster-autoscaler(-[a-z0-9]+)?$"),
    "descheduler": re.compile(r"(^|/)descheduler$"),
}
_RUN_BY: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"})
#: How a dump writes a component: as an object of its own, as workloads in dumps have no arguments.
COMPONENT: Final = ("moorage.dev/v1", "Component")
#: Workloads as a recorder follows them: their document is the component that they run, empty without one.
RUNNERS: Final = {plural: custom_type(f"{plural}.v1.moorage.dev") for plural in ("deployments", "cronjobs")}
#: Config maps as a recorder follows them: with the texts that components read.
CONFIG_MAP_TYPE: Final = custom_type("configmaps.v1.")
#: The types whose documents are made for a log.
MADE_FOR_LOGS: Final = frozenset([*RUNNERS.values(), CONFIG_MAP_TYPE])
#: The kinds of these components that a live cluster is asked for where it serves them: plural and group, and the versions, the
#: best first.
COMPANIONS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    **{
        (plural, "kueue.x-k8s.io"): ("v1beta2", "v1beta1")
        for plural in (
            "clusterqueues", "localqueues", "cohorts", "resourceflavors", "workloads", "workloadpriorityclasses",
            "admissionchecks", "topologies",
        )
    },
    ("jobsets", "jobset.x-k8s.io"): ("v1alpha2",),
    ("leaderworkersets", "leaderworkerset.x-k8s.io"): ("v1",),
    **{(plural, "ray.io"): ("v1",) for plural in ("rayjobs", "rayclusters")},
    **{
        (plural, "kubeflow.org"): ("v1",)
        for plural in ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs")
    },
    ("mpijobs", "kubeflow.org"): ("v2beta1",),
    **{(plural, "karpenter.sh"): ("v1",) for plural in ("nodepools", "nodeclaims")},
    ("nodeoverlays", "karpenter.sh"): ("v1alpha1",),
    ("capacitybuffers", "autoscaling.x-k8s.io"): ("v1beta1",),
}  # fmt: skip
#: The kinds of configuration files, which config maps hold and no API server serves.
FILES: Final = tuple(f"configurations.{version}.config.kueue.x-k8s.io" for version in ("v1beta1", "v1beta2"))
#: All of these, in every version, as readers take them.
COMPANION_KINDS: Final = (
    *(f"{plural}.{version}.{group}" for (plural, group), versions in COMPANIONS.items() for version in versions), *FILES,
)  # fmt: skip
#: Config maps that components read or write, beside those that their pods mount: namespace and name.
CONFIG_MAPS: Final = (
    ("kube-system", "cluster-autoscaler-status"), ("kube-system", "cluster-autoscaler-priority-expander"),
)  # fmt: skip
_BESIDE: Final = {"cluster-autoscaler": ("cluster-autoscaler-status", "cluster-autoscaler-priority-expander")}
#: What of a command line and an environment a dump keeps: the settings that change decisions.
_KEPT_FLAGS: Final = {
    "kueue": frozenset({"feature-gates", "config"}),
    "karpenter": frozenset({
        "feature-gates", "batch-idle-duration", "batch-max-duration", "preference-policy", "min-values-policy",
        "ignore-dra-requests",
    }),
    "descheduler": frozenset({"policy-config-file", "descheduling-interval", "dry-run"}),
}  # fmt: skip
#: Flags of cluster-autoscaler that a dump does not keep: they name accounts, files and addresses.
_LEFT_OUT: Final = frozenset({
    "cloud-config", "kubeconfig", "kubernetes", "master", "address", "grpc-expander-cert", "grpc-expander-url", "user-agent",
})  # fmt: skip


class Component(NamedTuple):
    """The container that runs a component: its image, its command line, and its environment as far as it is written down."""

    name: str
    image: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def version(self) -> tuple[int, ...]:
        """Return the numbers of the image's tag; empty without a tag that is a version."""
        found = re.fullmatch(
            r"v?(\d+)\.(\d+)(?:\.(\d+))?.*", self.image.partition("@")[0].rpartition("/")[2].rpartition(":")[2]
        )
        return () if found is None else tuple(int(part) for part in found.groups() if part is not None)

    def flag(self, name: str) -> str | None:
        """Return the value of a flag on the command line, the last one; None without one."""
        value = None
        for at, one in enumerate(self.arguments):
            flag, equals, rest = one.removeprefix("-").removeprefix("-").partition("=")
            if one.startswith("-") and flag == name:
                value = rest if equals else next(iter(self.arguments[at + 1 : at + 2]), "")
        return value


def component_of(found: FoundObject) -> Component | None:
    """Return the component that a dump has; None for other objects."""
    if (found.api_version, found.kind) != COMPONENT:
        return None
    document = plain_object(found)
    environment = {str(name): str(value) for name, value in (document.get("environment") or {}).items()}
    return Component(
        str(document.get("name")), str(document.get("image")), tuple(map(str, _list(document.get("arguments")))), environment
    )


def kept_component(one: Component, namespace: str) -> dict[str, Any]:
    """Return a component as a dump keeps it: with the settings that change decisions, and no others."""
    kept, arguments = _KEPT_FLAGS.get(one.name), list[str]()
    for at, word in enumerate(one.arguments):
        name = word.removeprefix("-").removeprefix("-").partition("=")[0]
        if word.startswith("-") and (name in kept if kept is not None else name not in _LEFT_OUT):
            following = one.arguments[at + 1 : at + 2]
            arguments += [word, *(following if "=" not in word and following and not following[0].startswith("-") else ())]
    names = {flag.upper().replace("-", "_") for flag in kept or ()}
    environment = {name: value for name, value in one.environment.items() if name in names}
    head = {"apiVersion": COMPONENT[0], "kind": COMPONENT[1], "metadata": {"name": one.name, "namespace": namespace}}
    return {**head, "name": one.name, "image": one.image, "arguments": arguments, "environment": environment}


def config_maps_of(found: FoundObject) -> Iterator[tuple[str, str]]:
    """Yield the namespaces and names of the config maps that the components of a workload read or write."""
    names = {one.name for one in components_of(found)}
    if not names:
        return
    document = plain_object(found)
    namespace = str((document.get("metadata") or {}).get("namespace") or "default")
    for name in names:
        yield from ((namespace, one) for one in _BESIDE.get(name, ()))
    for volume in _list((_pod_spec(document) or {}).get("volumes")):
        source = volume.get("configMap") if isinstance(volume, dict) else None
        if isinstance(source, dict) and isinstance(source.get("name"), str):
            yield namespace, source["name"]


def kept_config_map(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a config map as a dump keeps it: with the texts that are read; None without one."""
    meta, held = document.get("metadata") or {}, document.get("data")
    kept = {
        key: text
        for key, text in (held if isinstance(held, dict) else {}).items()
        if isinstance(text, str) and (key in {"status", "priorities"} or any(group in text for group in _FILES))
    }
    if not kept:
        return None
    head = {"name": meta.get("name"), "namespace": meta.get("namespace")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": kept}


def files_of(found: FoundObject) -> Iterator[FoundObject]:
    """Yield the configuration files of components that a config map holds."""
    if found.kind != "ConfigMap" or found.api_version != "v1":
        return
    document = plain_object(found)
    held = document.get("data")
    name = (document.get("metadata") or {}).get("name") if isinstance(document.get("metadata"), dict) else None
    for key, text in held.items() if isinstance(held, dict) else ():
        if not isinstance(text, str) or not any(group in text for group in _FILES):
            continue
        where = f"{found.where}: ConfigMap {name}: data[{key}]"
        try:
            trees = [one.data for one in read_yaml(text, where)]
        except InputError:
            continue  # a file of another form, in which the group is only named
        for tree in trees:
            if isinstance(tree, dict) and str(tree.get("apiVersion", "")).startswith(_FILES):
                yield FoundObject(str(tree["apiVersion"]), str(tree.get("kind", "")), tree, where)


def components_of(found: FoundObject) -> Iterator[Component]:
    """Yield the components that a workload runs."""
    if found.kind not in _RUN_BY or not _names_one(found):
        return
    for container in _containers(plain_object(found)):
        image = container.get("image")
        if not isinstance(image, str):
            continue
        path = re.sub(r"[:@][^/]*$", "", image)
        name = next((name for name, pattern in _IMAGES.items() if pattern.search(path)), None)
        if name is not None:
            words = [*_list(container.get("command")), *_list(container.get("args"))]
            environment = {
                one["name"]: one["value"]
                for one in _list(container.get("env"))
                if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
            }
            yield Component(name, image, tuple(map(str, words)), environment)


def _names_one(found: FoundObject) -> bool:
    """Return whether an object may run a component: most do not, and are not parsed for it."""
    if isinstance(found.payload, dict):
        return True
    text = bytes(found.payload)
    return any(name.encode() in text for name in _IMAGES)


def _pod_spec(document: Mapping[str, Any]) -> dict[str, Any] | None:
    spec = document.get("spec")
    for step in ("jobTemplate", "spec") if document.get("kind") == "CronJob" else ():
        spec = spec.get(step) if isinstance(spec, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    return pod if isinstance(pod, dict) else None


def _containers(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in _list((_pod_spec(document) or {}).get("containers")):
        if isinstance(one, dict):
            yield one


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

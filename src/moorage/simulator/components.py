"""Components beside the scheduler, as a cluster's own objects set them up: Kueue, Karpenter, cluster-autoscaler, descheduler.

A config map holds the configuration file of such a component, and a workload its command line and environment. The reader of
clusters finds both: the file is read as if it were given itself, the command line is kept as a ``Component``.

Source  the manifests and charts that the four projects ship
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

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


def _containers(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = document.get("spec")
    for step in ("jobTemplate", "spec") if document.get("kind") == "CronJob" else ():
        spec = spec.get(step) if isinstance(spec, dict) else None
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    for one in _list(pod.get("containers")) if isinstance(pod, dict) else ():
        if isinstance(one, dict):
            yield one


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

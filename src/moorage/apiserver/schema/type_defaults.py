"""Defaults of nested types, wherever they occur in an object: a walk guided by the schema.

A probe gets a period and a mounted secret a file mode, in any container or template. The walk also adds empty values that
Go always encodes: zero numbers, null times, empty structs. The plan for each type is computed once, so types without
defaults are skipped.

Source  kubernetes, pkg/apis/{apps,batch,core,resource,storage}/v1: defaults.go and zz_generated.defaults.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from moorage.api.quantity import NANO_PER_MILLI, canonical, milli_value, parse
from moorage.apiserver.schema.schemas import Field, ListOf, MapOf, Scalar, Struct, kind_schema
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["complete_types", "pulls_always"]

SetDefaults = Callable[[Document], None]


class _Inner(NamedTuple):
    """A field with a struct, or with a list or a map of structs. ``is_written``: it is written even when empty."""

    name: str
    holds: type[Scalar | ListOf | MapOf | Struct]
    plan: _Plan
    is_written: bool


class _Plan(NamedTuple):
    """The defaults of a type; false if there are none."""

    defaults: SetDefaults | None
    inner: tuple[_Inner, ...]
    zeros: tuple[tuple[str, Any], ...]

    def __bool__(self) -> bool:
        return self.defaults is not None or bool(self.inner or self.zeros)


def complete_types(kind: ServedKind, document: Document) -> None:
    """Set the defaults of all nested types of an object, in place."""
    _complete(_plan_of(kind), document)


@cache
def _plan_of(kind: ServedKind) -> _Plan:
    return _plan(kind_schema(kind), {})


def _plan(shape: Struct, known: dict[str, _Plan]) -> _Plan:
    if shape.name not in known:
        known[shape.name] = _Plan(None, (), ())
        inner, zeros = [], []
        for field in shape.fields.values():
            found = _inner(field, known)
            if found is not None:
                inner.append(found)
            if (found is None or not found.is_written) and _is_written(field) and (shape.name, field.name) not in _NEVER_ZERO:
                zeros.append((field.name, _zero(field)))
        known[shape.name] = _Plan(_RULES.get(shape.name), tuple(inner), tuple(zeros))
    return known[shape.name]


def _inner(field: Field, known: dict[str, _Plan]) -> _Inner | None:
    shape = field.type
    item = shape.item if isinstance(shape, (ListOf, MapOf)) else shape
    if not isinstance(item, Struct):
        return None
    is_written = isinstance(shape, Struct) and not field.is_pointer
    plan = _plan(item, known)
    return _Inner(field.name, type(shape), plan, is_written) if plan or is_written else None


#: Time fields are written when empty, except this one.
_NEVER_ZERO: Final = frozenset([("meta.ObjectMeta", "creationTimestamp")])


def _is_written(field: Field) -> bool:
    """Return True for a field that Go encodes when empty."""
    if field.name in {"apiVersion", "kind"} and field.omits_empty:
        return False
    is_struct_in_go = isinstance(field.type, Scalar) and field.type.letter in "QTU"
    return not field.omits_empty or (is_struct_in_go and not field.is_pointer)


_ZEROS: Final[Mapping[str, Any]] = {"s": "", "i": 0, "b": False, "f": 0, "O": 0, "Q": "0"}


def _zero(field: Field) -> Any:
    if field.is_pointer or not isinstance(field.type, Scalar):
        return None
    return _ZEROS.get(field.type.letter)


def _complete(plan: _Plan, document: Document) -> None:
    if plan.defaults is not None:
        plan.defaults(document)
    for name, holds, inner, is_written in plan.inner:
        held = document.get(name)
        if held is None:
            if is_written:
                document[name] = held = {}
            else:
                continue
        if holds is Struct:
            if isinstance(held, dict):
                _complete(inner, held)
            continue
        for one in held.values() if isinstance(held, dict) else held if isinstance(held, list) else ():
            if isinstance(one, dict):
                _complete(inner, one)
    for name, zero in plan.zeros:
        if name not in document or (zero is None and document[name] in ([], {})):
            document[name] = zero


# -- defaults by type --------------------------------------------------------------------------------------------------


def _defaults(**defaults: Any) -> SetDefaults:
    """Return a function that sets absent fields."""
    pairs = tuple(defaults.items())

    def fill(document: Document) -> None:
        for name, value in pairs:
            if document.get(name) is None:
                document[name] = value

    return fill


def _defaults_if_zero(**defaults: int) -> SetDefaults:
    """Return a function that sets absent or zero numbers."""
    pairs = tuple(defaults.items())

    def fill(document: Document) -> None:
        for name, value in pairs:
            if not document.get(name):
                document[name] = value

    return fill


def pulls_always(image: str) -> bool:
    """Return True for an image with the tag "latest" or without a tag or digest, which may change."""
    return image.endswith(":latest") or (":" not in image.rpartition("/")[2] and "@" not in image)


def _policy(image: Any) -> str:
    return "Always" if pulls_always(str(image or "")) else "IfNotPresent"


def _container(container: Document) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _policy(container.get("image"))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")


def _volume(volume: Document) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}


def _image(source: Document) -> None:
    if not source.get("pullPolicy"):
        source["pullPolicy"] = _policy(source.get("reference"))


def _pod_spec(spec: Document) -> None:
    for name, value in (
        ("dnsPolicy", "ClusterFirst"), ("restartPolicy", "Always"), ("schedulerName", "default-scheduler"),
        ("terminationGracePeriodSeconds", 30),
    ):  # fmt: skip
        spec.setdefault(name, value)
    spec.setdefault("securityContext", {})
    # One field under its deprecated and its current name.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _device_request(request: Document) -> None:
    if request.setdefault("allocationMode", "ExactCount") == "ExactCount" and not request.get("count"):
        request["count"] = 1


def _mapped_amounts(device: Document) -> None:
    for held in (device.get("nodeAllocatableResourceMappings") or {}).values():
        if isinstance(held, dict):
            held.setdefault("allocationMultiplier", "1")


def _modes(driver: Document) -> None:
    _DRIVER(driver)
    if not driver.get("volumeLifecycleModes"):
        driver["volumeLifecycleModes"] = ["Persistent"]


def _rounded(*names: str) -> SetDefaults:
    """Return a function that rounds amounts up to thousandths, the finest stored precision."""

    def fill(document: Document) -> None:
        for name in names:
            for resource, amount in (document.get(name) or {}).items():
                if parse(amount) % NANO_PER_MILLI:
                    document[name][resource] = canonical(f"{milli_value(amount)}m")

    return fill


_DRIVER: Final = _defaults(
    attachRequired=True, podInfoOnMount=False, storageCapacity=False, fsGroupPolicy="ReadWriteOnceWithFSType",
    requiresRepublish=False, seLinuxMount=False,
)  # fmt: skip
_FILES: Final = _defaults(defaultMode=0o644)
_BLOCK_DEVICE: Final = _defaults(pool="rbd", user="admin", keyring="/etc/ceph/keyring")
_SCALE_IO: Final = _defaults(storageMode="ThinProvisioned", fsType="xfs")
_TCP: Final = _defaults(protocol="TCP")

_RULES: Final[Mapping[str, SetDefaults]] = {
    "apps.StatefulSetPersistentVolumeClaimRetentionPolicy": _defaults(whenDeleted="Retain", whenScaled="Retain"),
    "batch.PodFailurePolicyOnPodConditionsPattern": _defaults(status="True"),
    "core.AzureDiskVolumeSource": _defaults(cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared"),
    "core.ConfigMapVolumeSource": _FILES,
    "core.Container": _container,
    "core.ContainerPort": _TCP,
    "core.DownwardAPIVolumeSource": _FILES,
    "core.EndpointPort": _TCP,
    "core.EphemeralContainer": _container,
    "core.FileKeySelector": _defaults(optional=False),
    "core.GRPCAction": _defaults(service=""),
    "core.HTTPGetAction": _defaults(path="/", scheme="HTTP"),
    "core.HostPathVolumeSource": _defaults(type=""),
    "core.ISCSIPersistentVolumeSource": _defaults(iscsiInterface="default"),
    "core.ISCSIVolumeSource": _defaults(iscsiInterface="default"),
    "core.ImageVolumeSource": _image,
    "core.ObjectFieldSelector": _defaults(apiVersion="v1"),
    "core.PersistentVolumeClaimSpec": _defaults(volumeMode="Filesystem"),
    "core.PersistentVolumeSpec": _defaults(persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem"),
    "core.PodSpec": _pod_spec,
    "core.Probe": _defaults_if_zero(timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3),
    "core.ProjectedVolumeSource": _FILES,
    "core.RBDPersistentVolumeSource": _BLOCK_DEVICE,
    "core.RBDVolumeSource": _BLOCK_DEVICE,
    "core.ResourceQuotaSpec": _rounded("hard"),
    "core.ResourceQuotaStatus": _rounded("hard", "used"),
    "core.ScaleIOPersistentVolumeSource": _SCALE_IO,
    "core.ScaleIOVolumeSource": _SCALE_IO,
    "core.SecretVolumeSource": _FILES,
    "core.ServiceAccountTokenProjection": _defaults(expirationSeconds=3600),
    "core.Volume": _volume,
    "resource.Device": _mapped_amounts,
    "resource.DeviceSubRequest": _device_request,
    "resource.ExactDeviceRequest": _device_request,
    "storage.CSIDriverSpec": _modes,
}

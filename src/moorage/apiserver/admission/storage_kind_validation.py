"""Validation of drivers, attachments, classes, volumes and claims, beyond what scheduling reads.

Source  kubernetes, pkg/apis/storage/validation/validation.go; pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.api.names import check_dns1123_subdomain, check_qualified_name
from moorage.api.validation.faults import duplicate, forbidden, invalid, named, one_of, required, too_long, unsupported
from moorage.apiserver.admission.field_checks import driver_name_faults, missing
from moorage.apiserver.admission.volume_validation import volume_source_faults
from moorage.apiserver.schema.schemas import schema
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["attachment_faults", "claim_faults", "csi_node_faults", "driver_faults", "storage_class_faults", "volume_faults"]

Faults = Iterator[Fault]
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES: Final = ("Persistent", "Ephemeral")
_MOST_PARAMETERS: Final = 512
_MOST_PARAMETER_BYTES: Final = 256 * 1024
_MOST_NAME: Final = 63
_MOST_NODE_ID: Final = 256
_SHORTEST_TOKEN_S: Final = 600
_SHORTEST_PERIOD_S: Final = 10


def driver_faults(driver: Document) -> Faults:
    """Yield the faults of a CSIDriver."""
    spec = driver.get("spec") or {}
    if len(driver["metadata"].get("name") or "") > _MOST_NAME:
        yield too_long("metadata.name", _MOST_NAME)
    yield from one_of("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), _GROUP_POLICIES)
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in _LIFECYCLES:
            yield unsupported("spec.volumeLifecycleModes", mode, _LIFECYCLES)
    yield from _token_faults("spec.tokenRequests", spec.get("tokenRequests") or ())
    period, in_secrets = spec.get("nodeAllocatableUpdatePeriodSeconds"), spec.get("serviceAccountTokenInSecrets")
    if period is not None and period < _SHORTEST_PERIOD_S:
        yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, "must be greater than or equal to 10 seconds")
    if in_secrets is not None and not spec.get("tokenRequests"):
        why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield invalid("spec.serviceAccountTokenInSecrets", in_secrets, why)


def _token_faults(path: str, requests: Any) -> Faults:
    seen: set[str] = set()
    for i, one in enumerate(requests):
        audience, seconds = one.get("audience") or "", one.get("expirationSeconds")
        if audience in seen:
            yield duplicate(f"{path}[{i}].audience", audience)
            continue
        seen.add(audience)
        at = f"{path}[{i}].expirationSeconds"
        if seconds is not None and seconds < _SHORTEST_TOKEN_S:
            yield invalid(at, seconds, "may not specify a duration less than 10 minutes")
        if seconds is not None and seconds > 1 << 32:
            yield invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")


def csi_node_faults(node: Document) -> Faults:
    """Yield the faults of a CSINode."""
    for i, driver in enumerate((node.get("spec") or {}).get("drivers") or ()):
        at, name, node_id = f"spec.drivers[{i}]", driver.get("name") or "", driver.get("nodeID") or ""
        if name:  # moorage.api.validation reports an empty name
            yield from driver_name_faults(f"{at}.name", name)
        if not node_id:
            yield required(f"{at}.nodeID")
        elif len(node_id.encode()) > _MOST_NODE_ID:
            yield invalid(f"{at}.nodeID", node_id, f"must be {_MOST_NODE_ID} characters or less")
        keys: set[str] = set()
        for key in driver.get("topologyKeys") or ():
            if not key:
                yield required(at, key)
            if key in keys:
                yield duplicate(at, key)
            keys.add(key)
            yield from named(at, key, check_qualified_name)


def storage_class_faults(found: Document) -> Faults:
    """Yield the faults of a StorageClass."""
    if provisioner := found.get("provisioner"):
        yield from named("provisioner", provisioner.lower(), check_qualified_name)
    parameters = found.get("parameters") or {}
    if len(parameters) > _MOST_PARAMETERS:
        yield too_long("parameters", _MOST_PARAMETERS)
        return
    if "" in parameters:
        yield invalid("parameters", "", "field can not be empty.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > _MOST_PARAMETER_BYTES:
        yield too_long("parameters", _MOST_PARAMETER_BYTES)
    yield from _topology_faults(found.get("allowedTopologies") or ())


def _topology_faults(topologies: Any) -> Faults:
    terms: list[dict[str, set[str]]] = [{}] * len(topologies)  # kube-apiserver compares with as many empty terms
    for i, term in enumerate(topologies):
        wanted = {one.get("key"): set(one.get("values") or ()) for one in term.get("matchLabelExpressions") or ()}
        yield from (duplicate(f"allowedTopologies[{i}].matchLabelExpressions", "") for one in terms if one == wanted)
        terms.append(wanted)


def attachment_faults(attachment: Document) -> Faults:
    """Yield the faults of a VolumeAttachment."""
    spec = attachment.get("spec") or {}
    yield from driver_name_faults("spec.attacher", spec.get("attacher"))
    source = spec.get("source") or {}
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    only_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if inline is None and name is None:
        yield required("spec.source", only_one)
    elif inline is not None and name is not None:
        yield forbidden("spec.source", only_one)
    elif inline is not None:
        yield from _inline_faults("spec.source.inlineVolumeSpec", inline)
    elif not name:
        yield required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
    yield from named("spec.nodeName", spec.get("nodeName") or "", check_dns1123_subdomain)
    if name is not None:
        yield from named("spec.source.persistentVolumeName", name, check_dns1123_subdomain)


def _inline_faults(path: str, spec: Document) -> Faults:
    for name in ("claimRef", "capacity"):
        if spec.get(name):
            yield forbidden(f"{path}.{name}", "may not be specified in the context of inline volumes")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", "has to be specified in the context of inline volumes")
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes")
    if spec.get("persistentVolumeReclaimPolicy") not in {None, "", "Retain"}:
        why = "may only be Retain in the context of inline volumes"
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", why)
    if spec.get("nodeAffinity") is not None:
        yield forbidden(f"{path}.nodeAffinity", "may not be specified in the context of inline volumes")
    yield from _volume_sources(path, spec)


# -- volumes and claims -------------------------------------------------------------------------------------------------

#: Required fields of the sources that have other fields in persistent volumes than in pods.
_PERSISTENT: Final = {"csi": ("driver", "volumeHandle"), "glusterfs": ("endpoints", "path"), "local": ("path",)}


def volume_faults(volume: Document) -> Faults:
    """Yield the faults of a PersistentVolume."""
    spec = volume.get("spec") or {}
    yield from _volume_sources("spec", spec)
    path = (spec.get("hostPath") or {}).get("path")
    if path and not path.strip("/") and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield forbidden("spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
    if spec.get("volumeAttributesClassName") == "":
        yield required("spec.volumeAttributesClassName", "an empty string is disallowed")


def _volume_sources(path: str, spec: Document) -> Faults:
    given = [one for one in schema("core.PersistentVolumeSpec").fields if one in _SOURCES and spec.get(one) is not None]
    if not given:
        yield required(path, "must specify a volume type")
    for extra in given[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
    for name in given[:1]:
        if name in _PERSISTENT:
            yield from missing(f"{path}.{name}", spec[name], *_PERSISTENT[name])
            yield from driver_name_faults(f"{path}.csi.driver", spec[name]["driver"]) if spec[name].get("driver") else ()
        elif name == "hostPath" and not spec[name].get("path"):
            yield required(f"{path}.hostPath.path")
        else:
            yield from volume_source_faults(path, name, spec[name])


_SOURCES: Final = frozenset([
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte",
    "rbd", "scaleIO", "storageos", "vsphereVolume",
])  # fmt: skip


def claim_faults(claim: Document) -> Faults:
    """Yield the faults of a PersistentVolumeClaim."""
    spec = claim.get("spec") or {}
    for name in ("dataSource", "dataSourceRef"):
        if (source := spec.get(name)) is not None:
            yield from _data_source_faults(f"spec.{name}", source)
    if attributes := spec.get("volumeAttributesClassName"):
        yield from named("spec.volumeAttributesClassName", attributes, check_dns1123_subdomain)


def _data_source_faults(path: str, source: Document) -> Faults:
    yield from missing(path, source, "name", "kind")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind") or "", why)
    if group:
        yield from named(f"{path}.apiGroup", group, check_dns1123_subdomain)

"""Validation of drivers, attachments, classes, volumes and claims, and of the sources of volumes.

Source  kubernetes, pkg/apis/storage/validation/validation.go; pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moorage.api.names import check_dns1123_subdomain, check_qualified_name
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import (
    duplicate,
    forbidden,
    in_range,
    invalid,
    named,
    one_of,
    required,
    too_long,
    unsupported,
)
from moorage.cluster.apiserver.admission.container_validation import field_faults, resource_faults
from moorage.cluster.apiserver.admission.string_formats import (
    backstep_faults,
    descending_path_faults,
    driver_name_faults,
    missing,
    mode_faults,
    volume_path_faults,
)
from moorage.cluster.apiserver.schema.schemas import schema
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.errors import Fault

# -- volume validation -------------------------------------------------------------------------------------------------
# Validation of the sources of volumes, in pods and in persistent volumes.
#
# Source  kubernetes, pkg/apis/core/validation/validation.go, validateVolumeSource and the functions that it calls

Faults = Iterator[Fault]
_HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_CACHING_MODES: Final = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS: Final = ("Dedicated", "Managed", "Shared")
_IQN_STARTS: Final = ("iqn", "eui", "naa")
#: Fields that the source must set, by the name of the source.
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "configMap": ("name",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "nfs": ("server", "path"),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "quobyte": ("volume",),
    "rbd": ("monitors", "image"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "secret": ("secretName",),
    "storageos": ("volumeName",),
    "vsphereVolume": ("volumePath",),
}
#: Sources that faults call by another name than the field.
_SHOWN: Final[Mapping[str, str]] = {"gcePersistentDisk": "persistentDisk"}


def volume_source_faults(path: str, name: str, source: Document, *, is_pod: bool = True) -> Faults:
    """Yield the faults of one volume source. ``path`` is the path of the volume."""
    at = f"{path}.{_SHOWN.get(name, name)}"
    yield from missing(at, source, *_REQUIRED.get(name, ()))
    rule = _RULES.get(name)
    if rule is not None:
        yield from rule(at, source)
    if name == "image" and is_pod:
        yield from missing(at, source, "reference")


def _empty_dir(path: str, source: Document) -> Faults:
    limit = source.get("sizeLimit")
    try:
        is_negative = limit is not None and parse(limit) < 0
    except QuantityError:
        is_negative = True
    if is_negative:
        yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(path: str, source: Document) -> Faults:
    if source.get("path"):
        yield from backstep_faults(f"{path}.path", source["path"])
        yield from one_of(f"{path}.type", source.get("type"), _HOST_PATH_TYPES)


def _nfs(path: str, source: Document) -> Faults:
    if not (source.get("path") or "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path") or "", "must be an absolute path")


def _iscsi(path: str, source: Document) -> Faults:
    iqn, initiator = source.get("iqn") or "", source.get("initiatorName")
    if iqn and not iqn.startswith(_IQN_STARTS):
        yield invalid(f"{path}.iqn", iqn, "must be valid format starting with iqn, eui, or naa")
    yield from in_range(f"{path}.lun", source.get("lun") or 0, 0, 255)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield required(f"{path}.secretRef")
    if initiator is not None and not initiator.startswith(_IQN_STARTS):
        yield invalid(f"{path}.initiatorname", initiator, "must be valid format starting with iqn, eui, or naa")


def _fc(path: str, source: Document) -> Faults:
    targets, ids = source.get("targetWWNs"), source.get("wwids")
    if not targets and not ids:
        yield required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if targets and ids:
        yield invalid(f"{path}.targetWWNs", targets, "targetWWNs and wwids can not be specified simultaneously")
    if targets and source.get("lun") is None:
        yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif targets:
        yield from in_range(f"{path}.lun", source["lun"], 0, 255)


def _disk(path: str, source: Document) -> Faults:
    yield from in_range(f"{path}.partition", source.get("partition"), 0, 255, "must be between 1 and 255, inclusive")


def _git(path: str, source: Document) -> Faults:
    yield from descending_path_faults(f"{path}.directory", source.get("directory") or "")


def _azure_disk(path: str, source: Document) -> Faults:
    yield from one_of(f"{path}.cachingMode", source.get("cachingMode"), _CACHING_MODES)
    yield from one_of(f"{path}.kind", source.get("kind"), _DISK_KINDS)


def _csi(path: str, source: Document) -> Faults:
    yield from driver_name_faults(f"{path}.driver", source.get("driver"))
    secret = source.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.nodePublishSecretRef.name")


def _image(path: str, source: Document) -> Faults:
    yield from one_of(f"{path}.pullPolicy", source.get("pullPolicy") or None, _PULL_POLICIES)


def _flocker(path: str, source: Document) -> Faults:
    name, uid = source.get("datasetName") or "", source.get("datasetUUID")
    if not name and not uid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(f"{path}.datasetName", name, "must not contain '/'")


def _quobyte(path: str, source: Document) -> Faults:
    registry = source.get("registry") or ""
    why = "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        yield required(f"{path}.registry", why)
    elif any(":" not in pair for pair in registry.split(",")):
        yield invalid(f"{path}.registry", registry, why)


def _ephemeral(path: str, source: Document) -> Faults:
    at, template = f"{path}.volumeClaimTemplate", source.get("volumeClaimTemplate")
    if template is None:
        yield required(at)
        return
    spec = template.get("spec") or {}
    if not spec.get("accessModes"):
        yield required(f"{at}.spec.accessModes", "at least 1 access mode is required")
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield required(f"{at}.spec.resources[storage]")


# -- volumes of files ---------------------------------------------------------------------------------------------------


def _keys(path: str, source: Document) -> Faults:
    yield from mode_faults(path, source, "defaultMode")
    yield from _items(f"{path}.items", source.get("items"))


def _items(path: str, items: Any) -> Faults:
    for i, item in enumerate(items or ()):
        at = f"{path}[{i}]"
        yield from missing(at, item, "key", "path")
        yield from volume_path_faults(f"{at}.path", item.get("path") or "")
        yield from mode_faults(at, item, "mode")


def _downward(path: str, source: Document) -> Faults:
    yield from mode_faults(path, source, "defaultMode")
    for item in source.get("items") or ():
        yield from _downward_file(path, item)


def _downward_file(path: str, item: Document) -> Faults:
    yield from missing(path, item, "path")
    yield from volume_path_faults(f"{path}.path", item.get("path") or "")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_faults(f"{path}.fieldRef", field, is_volume=True)
        if resource is not None:
            yield invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif resource is not None:
        yield from resource_faults(f"{path}.resourceFieldRef", resource, is_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from mode_faults(path, item, "mode")


def _projected(path: str, source: Document) -> Faults:
    yield from mode_faults(path, source, "defaultMode")
    seen: set[str] = set()
    for i, one in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{i}]"
        given = [name for name in _PROJECTED if one.get(name) is not None]
        for name in given:
            yield from _PROJECTED[name](at if name == "serviceAccountToken" else f"{at}.{name}", one[name], path)
        for taken, shown in _paths_of(one):
            if taken in seen:
                yield invalid(path, shown, "conflicting duplicate paths")
            seen.add(taken)
        if len(given) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _paths_of(source: Document) -> Iterator[tuple[str, str]]:
    """Yield the path of each file of a projected source, and the value for a fault's message. Tokens are left out."""
    for name in ("secret", "configMap", "downwardAPI"):
        projected = source.get(name) or {}
        for item in projected.get("items") or ():
            if item.get("path"):
                yield item["path"], item["path"] if name == "downwardAPI" else projected.get("name") or ""


def _projected_keys(path: str, source: Document, _: str) -> Faults:
    yield from missing(path, source, "name")
    yield from _items(f"{path}.items", source.get("items"))


def _projected_fields(path: str, source: Document, _: str) -> Faults:
    for item in source.get("items") or ():
        yield from _downward_file(path, item)


def _token(at: str, source: Document, path: str) -> Faults:
    seconds = source.get("expirationSeconds", 3600)
    where = f"{at}.serviceAccountToken.expirationSeconds"
    if seconds < 600:
        yield invalid(where, seconds, "may not specify a duration less than 10 minutes")
    if seconds > 1 << 32:
        yield invalid(where, seconds, "may not specify a duration larger than 2^32 seconds")
    if not source.get("path"):
        yield required(f"{path}.path")
    else:
        yield from volume_path_faults(f"{path}.path", source["path"])


_PROJECTED: Final[Mapping[str, Callable[[str, Document, str], Faults]]] = {
    "secret": _projected_keys, "configMap": _projected_keys, "downwardAPI": _projected_fields, "serviceAccountToken": _token,
}  # fmt: skip
_RULES: Final[Mapping[str, Callable[[str, Document], Faults]]] = {
    "awsElasticBlockStore": _disk, "azureDisk": _azure_disk, "configMap": _keys, "csi": _csi, "downwardAPI": _downward,
    "emptyDir": _empty_dir, "ephemeral": _ephemeral, "fc": _fc, "flocker": _flocker, "gcePersistentDisk": _disk,
    "gitRepo": _git, "hostPath": _host_path, "image": _image, "iscsi": _iscsi, "nfs": _nfs, "projected": _projected,
    "quobyte": _quobyte, "secret": _keys,
}  # fmt: skip


# -- storage kind validation -------------------------------------------------------------------------------------------

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

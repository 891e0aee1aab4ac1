"""CSI migration: translate in-tree volumes to their CSI drivers, with the handle and the node affinity that the drivers use.

CSI drivers serve the volumes of the former in-tree plugins. A driver identifies them by a different name (the handle) and its
nodes by a different topology label. The scheduler translates five kinds; Azure files and vSphere disks only count as kinds that
may migrate.

Source  csi-translation-lib: translate.go and plugins/{aws_ebs,azure_disk,gce_pd,openstack_cinder,portworx,in_tree_volume}.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from moorage.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from moorage.api.storage import PersistentVolume, PersistentVolumeSpec
from moorage.errors import InputError


class MigrationError(InputError):
    """An in-tree volume that its CSI driver cannot serve; the texts are csi-translation-lib's."""


class MigratedVolume(NamedTuple):
    """A volume as its CSI driver sees it. ``affinity``: the nodes that can access it; None: all."""

    driver: str
    handle: str
    affinity: NodeSelector | None = None


GCE_PD: Final = "kubernetes.io/gce-pd"
AWS_EBS: Final = "kubernetes.io/aws-ebs"
CINDER: Final = "kubernetes.io/cinder"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
_AZURE_FILE: Final = "kubernetes.io/azure-file"
_VSPHERE: Final = "kubernetes.io/vsphere-volume"
PORTWORX: Final = "kubernetes.io/portworx-volume"

#: Field of a volume's source → its in-tree plugin.
_PLUGIN_OF: Final[Mapping[str, str]] = {
    "gce_persistent_disk": GCE_PD,
    "aws_elastic_block_store": AWS_EBS,
    "cinder": CINDER,
    "azure_disk": AZURE_DISK,
    "azure_file": _AZURE_FILE,
    "vsphere_volume": _VSPHERE,
    "portworx_volume": PORTWORX,
}
_FIELD_OF: Final = {plugin: field for field, plugin in _PLUGIN_OF.items()}
_sources_of: Final = attrgetter(*_PLUGIN_OF)
_NO_SOURCES: Final = (None,) * len(_PLUGIN_OF)
#: In-tree plugin → the CSI driver that serves its volumes.
_DRIVER_OF: Final[Mapping[str, str]] = {
    GCE_PD: "pd.csi.storage.gke.io",
    AWS_EBS: "ebs.csi.aws.com",
    CINDER: "cinder.csi.openstack.org",
    AZURE_DISK: "disk.csi.azure.com",
    _AZURE_FILE: "file.csi.azure.com",
    _VSPHERE: "csi.vsphere.vmware.com",
    PORTWORX: "pxd.portworx.com",
}
#: The plugins whose volumes the scheduler does not translate.
_NOT_TRANSLATED: Final = frozenset({_AZURE_FILE, _VSPHERE})
#: In-tree plugin → the node label of its driver's zones.
_ZONE_LABEL_OF: Final[Mapping[str, str]] = {
    GCE_PD: "topology.gke.io/zone",
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_BETA_ZONE, _BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_BETWEEN_ZONES: Final = "__"
_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")


def in_tree_plugin(source: PersistentVolumeSpec | Volume) -> str | None:
    """Return the in-tree plugin of a volume, if it is of a kind that may migrate."""
    held = _sources_of(source)
    if held == _NO_SOURCES:
        return None
    return next(plugin for plugin, one in zip(_PLUGIN_OF.values(), held, strict=True) if one is not None)


def in_tree_plugins() -> frozenset[str]:
    """Return the names of all in-tree plugins."""
    return frozenset(_FIELD_OF)


def is_in_tree_plugin(provisioner: str) -> bool:
    """Return whether a storage class's provisioner is an in-tree plugin."""
    return provisioner in _FIELD_OF


def driver_of(plugin: str) -> str | None:
    """Return the CSI driver of an in-tree plugin; None if its volumes are not translated."""
    return None if plugin in _NOT_TRANSLATED else _DRIVER_OF.get(plugin)


def may_be_of(driver: str, volume: Volume) -> bool:
    """Return whether an inline volume may be one of this driver's; True if the volume cannot be translated."""
    plugin = in_tree_plugin(volume)
    try:
        translated_inline(volume)
    except MigrationError:
        return True
    return plugin is not None and _DRIVER_OF[plugin] == driver


def translated(volume: PersistentVolume) -> MigratedVolume | None:
    """Return an in-tree volume as its driver sees it; None for volumes that are not translated.

    Raises  MigrationError if the driver cannot serve it
    """
    plugin = in_tree_plugin(volume.spec)
    driver = None if plugin is None else driver_of(plugin)
    if plugin is None or driver is None:
        return None
    source = getattr(volume.spec, _FIELD_OF[plugin])
    handle = _gce_handle(source, volume.metadata.labels) if plugin == GCE_PD else _handle(plugin, source)
    affinity = volume.required_affinity
    if plugin in _ZONE_LABEL_OF:
        affinity = _translated_affinity(affinity, volume.metadata.labels, _ZONE_LABEL_OF[plugin])
    return MigratedVolume(driver, handle, affinity)


def translated_inline(volume: Volume) -> MigratedVolume | None:
    """Return an inline volume as its driver sees it; None if it is not translated.

    Raises  MigrationError if the driver cannot serve it
    """
    plugin = in_tree_plugin(volume)
    driver = None if plugin is None else driver_of(plugin)
    if plugin is None or driver is None:
        return None
    source = getattr(volume, _FIELD_OF[plugin])
    return MigratedVolume(driver, _gce_handle(source, {}) if plugin == GCE_PD else _handle(plugin, source))


class Migration(NamedTuple):
    """The in-tree plugins that nodes of a release may migrate to CSI drivers, and how their volumes are translated."""

    plugins: frozenset[str]
    translate: Callable[[PersistentVolume], MigratedVolume | None]


#: Every kind, as far as each node declares it.
CURRENT_MIGRATION: Final = Migration(frozenset(_FIELD_OF), translated)


# -- handles ------------------------------------------------------------------------------------------------------------


def _handle(plugin: str, source: Mapping[str, Any]) -> str:
    if plugin == AZURE_DISK:
        kind = str(source.get("kind") or "Shared")
        if kind.lower() != "managed":
            raise MigrationError(f"kind({kind}) is not supported in csi migration")
        return str(source.get("diskURI") or "")
    volume_id = str(source.get("volumeID") or "")
    return _ebs_volume_id(volume_id) if plugin == AWS_EBS else volume_id


def _ebs_volume_id(text: str) -> str:
    """Return ``vol-…`` of ``aws://zone/vol-…``; any text without that prefix is returned as it is."""
    if not text.startswith("aws://"):
        return text
    try:
        volume_id = unquote(urlsplit(text).path).strip("/")
    except ValueError as error:
        raise MigrationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid disk name ({text}): {error}"
        ) from error
    if not _EBS_VOLUME.fullmatch(volume_id):
        raise MigrationError(f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({text})")
    return volume_id


def _gce_handle(source: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    disk = str(source.get("pdName") or "")
    zones = (labels.get(_BETA_ZONE) or labels.get(_ZONE, "")).split(_BETWEEN_ZONES)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{disk}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{disk}"


def _gce_region(zones: Iterable[str]) -> str:
    regions: dict[str, None] = {}
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise MigrationError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions["-".join(parts[:2])] = None
    if len(regions) != 1:
        shown = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise MigrationError(f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{shown}]")
    return next(iter(regions))


# -- node affinity ------------------------------------------------------------------------------------------------------


def _translated_affinity(affinity: NodeSelector | None, labels: Mapping[str, str], zone_key: str) -> NodeSelector | None:
    """Return a volume's node affinity with zones by the driver's label; add the zones of its labels if it names none.

    Regions of the beta label are translated to the stable label, because newer nodes only have that.
    """
    terms = affinity.node_selector_terms if affinity is not None else ()
    zone, region = _labels_in_use(terms, labels)
    if _has_values(terms, zone):
        terms = _renamed(terms, zone, zone_key)
    elif zone in labels:
        zones = sorted({part.strip() for part in labels[zone].split(_BETWEEN_ZONES)} - {""})
        if zones:
            added = NodeSelectorRequirement(key=zone_key, operator="In", values=tuple(zones))
            terms = tuple(
                replace(term, match_expressions=(*term.match_expressions, added)) for term in terms or (NodeSelectorTerm(),)
            )
    if region == _BETA_REGION and _has_values(terms, region):
        terms = _renamed(terms, region, _REGION)
    return NodeSelector(node_selector_terms=terms) if terms or affinity is not None else None


def _labels_in_use(terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the zone and region labels that the volume uses: in its affinity, else on itself, else the stable ones."""
    asked = {one.key for term in terms for one in term.match_expressions}
    for keys in (asked, labels):
        if _ZONE in keys:
            return _ZONE, _REGION
        if _BETA_ZONE in keys:
            return _BETA_ZONE, _BETA_REGION
    return _ZONE, _REGION


def _has_values(terms: Iterable[NodeSelectorTerm], key: str) -> bool:
    return any(one.key == key and one.values for term in terms for one in term.match_expressions)


def _renamed(terms: Iterable[NodeSelectorTerm], old: str, new: str) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        replace(
            term, match_expressions=tuple(replace(one, key=new) if one.key == old else one for one in term.match_expressions)
        )
        for term in terms
    )

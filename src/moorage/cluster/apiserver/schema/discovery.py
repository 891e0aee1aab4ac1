"""Discovery documents: API groups, resources, verbs and short names, in the legacy and in the aggregated format.

Source  apimachinery, pkg/apis/meta/v1/types.go; api, apidiscovery/v2
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from moorage.api.documents import served_kinds
from moorage.api.documents.served_kinds import KindTable, Review, ServedKind

#: Media type of aggregated discovery; the placeholder is its version.
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
#: Versions of aggregated discovery, which differ only in name.
_AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")


def version_document(version: str) -> dict[str, str]:
    """Return the document at ``/version`` of a server of this version, such as ``v1.36.3``."""
    minor = version.split(".")[1]
    return {
        "major": "1", "minor": minor, "emulationMajor": "1", "emulationMinor": minor, "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(int(minor) - 1), "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    }  # fmt: skip


#: The verbs that discovery shows of a custom kind whose definition is being deleted.
_TERMINATING_VERBS: Final = ("delete", "deletecollection", "get", "list", "watch")

#: Subresources: API group, version and kind of their bodies ("" for those of the resource), and verbs.
SUBRESOURCES: Final[dict[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "approval": ("", "", "", ("get", "patch", "update")),
    "attach": ("", "", "PodAttachOptions", ("create", "get")),
    "binding": ("", "v1", "Binding", ("create",)),
    "ephemeralcontainers": ("", "", "", ("get", "patch", "update")),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "exec": ("", "", "PodExecOptions", ("create", "get")),
    "finalize": ("", "", "", ("update",)),
    "log": ("", "", "", ("get",)),
    "portforward": ("", "", "PodPortForwardOptions", ("create", "get")),
    "proxy": ("", "", "", ("create", "delete", "get", "patch", "update")),
    "resize": ("", "", "", ("get", "patch", "update")),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "status": ("", "", "", ("get", "patch", "update")),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
}


def api_versions(host: str) -> dict[str, Any]:
    """Return the document at ``/api``: the versions of the core group, and the server's address."""
    place = {"clientCIDR": "0.0.0.0/0", "serverAddress": host}
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [place]}


def _groups(table: KindTable) -> Iterator[tuple[str, list[ServedKind | Review]]]:
    """Yield every group version, such as ``apps/v1``, with its kinds, the preferred version of a group first."""
    kinds: list[ServedKind | Review] = [*table.served, *served_kinds.MEASURED, *served_kinds.REVIEWS]
    served = sorted(kinds, key=lambda one: (one.group, served_kinds.version_priority(one.version), one.resource))
    for (group, version), members in groupby(served, key=lambda one: (one.group, one.version)):
        yield f"{group}/{version}", list(members)


def group_list(kinds: KindTable = served_kinds.UNGATED_KINDS) -> dict[str, Any]:
    """Return the document at ``/apis``: all groups but the core one. The first version of a group is the preferred one."""
    groups: dict[str, dict[str, Any]] = {}
    for name, _ in _groups(kinds):
        group, _, version = name.partition("/")
        if group:
            one = {"groupVersion": name, "version": version}
            groups.setdefault(group, {"name": group, "versions": [], "preferredVersion": one})["versions"].append(one)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}


def group_document(rest: list[str], kinds: KindTable = served_kinds.UNGATED_KINDS) -> dict[str, Any] | None:
    """Return the document at a path below ``/apis``: all groups, one group, or one version; None if it does not exist."""
    if len(rest) == 2:
        return resource_list(rest[0], rest[1], kinds)
    groups = group_list(kinds)
    if not rest:
        return groups
    found = next((one for one in groups["groups"] if one["name"] == rest[0]), None)
    return {"kind": "APIGroup", "apiVersion": "v1", **found} if found else None


def resource_list(group: str, version: str, kinds: KindTable = served_kinds.UNGATED_KINDS) -> dict[str, Any] | None:
    """Return the resources of a group version, or None if it is not served."""
    members = dict(_groups(kinds)).get(f"{group}/{version}")
    if members is None:
        return None
    resources = [entry for member in members for entry in _entries(member)]
    if not group:
        return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}", "resources": resources}


def _entries(member: ServedKind | Review) -> Iterator[dict[str, Any]]:
    if isinstance(member, Review):
        yield {
            "name": member.resource, "singularName": member.kind.lower(), "namespaced": member.namespaced, "kind": member.kind,
            "verbs": list(member.verbs),
        }  # fmt: skip
        return
    entry: dict[str, Any] = {
        "name": member.resource, "singularName": member.singular, "namespaced": member.namespaced, "kind": member.kind,
        "verbs": list(_TERMINATING_VERBS if member.custom is not None and member.custom.is_terminating else member.verbs),
    }  # fmt: skip
    if member.short_names:
        entry["shortNames"] = list(member.short_names)
    if member.categories:
        entry["categories"] = list(member.categories)
    if member not in served_kinds.MEASURED:
        entry["storageVersionHash"] = _storage_hash(member.storage)
    yield entry
    for subresource in member.subresources:
        group, version, kind, verbs = SUBRESOURCES[subresource]
        more = {"name": f"{member.resource}/{subresource}", "singularName": "", "namespaced": member.namespaced}
        kind = kind or (f"{member.kind}ProxyOptions" if subresource == "proxy" else member.kind)
        more |= {"kind": kind, "verbs": list(verbs)}
        yield {**more, "group": group, "version": version} if group else more


def _storage_hash(kind: ServedKind) -> str:
    """Return the storage version hash of a kind. It is the same for Events of both APIs."""
    group = "" if kind.native == "Event" else kind.group
    return base64.b64encode(hashlib.sha256(f"{group}/{kind.version}/{kind.kind}".encode()).digest()[:8]).decode()


def aggregated_version(accept: str) -> str:
    """Return the version of aggregated discovery that a client prefers, or "" for the legacy format."""
    for clause in accept.split(","):
        form, *parameters = (part.strip() for part in clause.split(";"))
        if form != "application/json":
            continue
        parameters_by_name = dict(parameter.partition("=")[::2] for parameter in parameters)
        if "as" not in parameters_by_name:
            return ""
        is_known = parameters_by_name.get("g") == "apidiscovery.k8s.io" and parameters_by_name["as"] == "APIGroupDiscoveryList"
        if is_known and parameters_by_name.get("v") in _AGGREGATED_VERSIONS:
            return parameters_by_name["v"]
    return ""


def aggregated(core: bool, served_version: str = "v2", kinds: KindTable = served_kinds.UNGATED_KINDS) -> dict[str, Any]:
    """Return aggregated discovery of the core group, or of all other groups."""
    found: dict[str, dict[str, Any]] = {}
    for name, members in _groups(kinds):
        group, _, version = name.partition("/")
        if (not group) is core:
            resources = [_aggregated_resource(member) for member in members]
            item = found.setdefault(group, {"metadata": {"name": group} if group else {}, "versions": []})
            item["versions"].append({"version": version, "resources": resources, "freshness": "Current"})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{served_version}",
        "metadata": {},
        "items": list(found.values()),
    }


def _aggregated_resource(member: ServedKind | Review) -> dict[str, Any]:
    own, *subresources = _entries(member)
    resource = {
        "resource": own["name"], "singularResource": own["singularName"], "verbs": own["verbs"],
        "responseKind": _response_kind(member, own),
        "scope": "Namespaced" if own["namespaced"] else "Cluster",
    }  # fmt: skip
    for name in ("shortNames", "categories"):
        if name in own:
            resource[name] = own[name]
    if subresources:
        resource["subresources"] = [
            {
                "subresource": entry["name"].partition("/")[2], "verbs": entry["verbs"],
                "responseKind": _response_kind(member, entry),
            }
            for entry in subresources
        ]  # fmt: skip
    return resource


def _response_kind(member: ServedKind | Review, entry: dict[str, Any]) -> dict[str, str]:
    """Return the kind of a response. Built-in kinds leave out the group and version that the path states."""
    states_all = isinstance(member, ServedKind) and member.custom is not None
    group, version = (member.group, member.version) if states_all else ("", "")
    return {"group": entry.get("group", group), "version": entry.get("version", version), "kind": entry["kind"]}

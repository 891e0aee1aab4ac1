"""The served kinds: names, verbs, subresources and field selectors of each resource.

Source  kube-apiserver 1.36, discovery and pkg/registry/*/strategy.go
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

from moorage.api import kinds
from moorage.api.feature_gates import FeatureGates
from moorage.api.kinds import Kind
from moorage.api.meta import Object
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain
from moorage.api.releases import CURRENT
from moorage.api.validation.rule_checks import check_path_segment
from moorage.basis import text_of
from moorage.errors import InputError

#: An object as it is in JSON.
Document = dict[str, Any]

# -- custom versions ---------------------------------------------------------------------------------------------------
# The properties that only versions of custom kinds have: a schema, printer columns, replica paths and names.
#
# Source  apiextensions-apiserver, pkg/apis/apiextensions/v1/types.go

#: A structural schema as a CustomResourceDefinition states it, whose fields have the types that the API demands.
Schema = Mapping[str, Any]


class PrinterColumn(NamedTuple):
    """A column of ``kubectl get``. ``path`` is a JSONPath without braces, such as ``.spec.size``."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(NamedTuple):
    """The paths of the replica counts and of the label selector, such as ``.spec.replicas``; ``selector`` may be empty."""

    wanted: str
    current: str
    selector: str = ""


@dataclass(frozen=True)
class ConversionWebhook:
    """The webhook that converts the objects of a definition between its versions.

    ``service``    the address that kube-apiserver would call for a service, and "" for a webhook with a ``url``
    ``authority``  the certificates that sign the webhook's, as PEM; "" for those of the system
    ``reviews``    versions of ConversionReview
    """

    url: str
    service: str
    authority: str
    reviews: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class CustomVersion:
    """A version of a custom kind. ``warning`` is sent with each response of a deprecated version.

    ``is_terminating``: the definition is being deleted, so nothing can be created.
    """

    schema: Schema
    singular: str
    list_kind: str
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: ScalePaths | None = None
    warning: str = ""
    is_served: bool = True
    is_terminating: bool = False
    webhook: ConversionWebhook | None = None


#: The group whose versions depend on the release (``group_versions``).
_GROUPED: Final = "scheduling.k8s.io"
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


def version_priority(version: str) -> tuple[bool, int, int, int, str]:
    """Return a sort key that puts preferred versions first: ``v2``, ``v1``, ``v1beta2``, ``v1alpha1``, then other names.

    Source  apimachinery, pkg/version/helpers.go, CompareKubeAwareVersionStrings
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return True, 0, 0, 0, version
    return False, -_STAGES[found[2] or ""], -int(found[1]), -int(found[3] or 0), ""


#: Groups whose resources extend the API, which is a category of theirs.
_EXTENSION_GROUPS: Final = frozenset(["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"])
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, eq=False)
class ServedKind:
    """A resource whose objects are stored, or computed on request.

    ``struct`` is the type that scheduling decodes and that is validated; None for kinds whose metadata alone is validated.
    ``needs_version``: a replacement states the version that it replaces. ``status_on_create`` is the initial status of a new
    object; None keeps the status that was sent. ``fields`` are the field selectors in addition to name and namespace, each
    with its default. ``gate`` is the feature gate that enables the kind, or the group and version that ``--runtime-config``
    enables; "" for none. ``custom`` is set for a version of a custom kind. The objects of a kind are stored once, in its
    storage version; ``stored_as`` is the kind of that version, None if this is the one.
    """

    group: str
    kind: str
    resource: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    struct: type[Object] | None = None
    subresources: tuple[str, ...] = ()
    in_all: bool = False
    has_generation: bool = False
    needs_version: bool = False
    status_on_create: dict[str, Any] | None = None
    fields: tuple[tuple[str, str], ...] = ()
    check_name: Callable[[str], list[str]] = check_dns1123_subdomain
    version: str = "v1"
    verbs: tuple[str, ...] = VERBS
    gate: str = ""
    custom: CustomVersion | None = None
    stored_as: ServedKind | None = None

    @property
    def native(self) -> str:
        """The name of a built-in kind. It is empty for a custom kind, to which no rule of a built-in kind applies."""
        return self.kind if self.custom is None else ""

    @property
    def storage(self) -> ServedKind:
        """The kind under which the objects are stored."""
        return self.stored_as or self

    def is_served(self, gates: Collection[str]) -> bool:
        """Return whether the kind, in this version, is served with these gates enabled."""
        by_version = self.gate.startswith(f"{_GROUPED}/")
        return all(not gate or gate in gates for gate in (self.gate, "" if by_version else self.storage.gate))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def go(self) -> str:
        """The internal Go type in kube-apiserver."""
        if self.custom is not None:
            return "unstructured.Unstructured"
        return f"{self.group.partition('.')[0] or 'core'}.{self.kind}"

    @property
    def singular(self) -> str:
        return self.kind.lower() if self.custom is None else self.custom.singular

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List" if self.custom is None else self.custom.list_kind

    @property
    def categories(self) -> tuple[str, ...]:
        if self.custom is not None:
            return self.custom.categories
        extends = self.group in _EXTENSION_GROUPS
        return ("all",) if self.in_all else ("api-extensions",) if extends else ()

    @cached_property
    def field_defaults(self) -> dict[str, str]:
        return dict(self.fields)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def qualified(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True)
class Review:
    """A kind that is created and not stored: a review, or a pod binding."""

    group: str
    kind: str
    resource: str
    namespaced: bool = False
    version: str = "v1"
    verbs: tuple[str, ...] = ("create",)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _details() -> Mapping[str, Mapping[str, Any]]:
    """Return what the rows in ``moorage.api.kinds`` do not have, by qualified name; its defaults are those of ``ServedKind``.

    ``versions``: the other versions of the kind, each with its ``gate``.
    """
    text = text_of("moorage.api.documents", "kind_details.json")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return found


def _check_address(name: str) -> list[str]:
    """Return why a name is no IP address in its canonical form, which is the name of an IPAddress."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        parts = name.split(".")
        if len(parts) == 4 and all(part.isdigit() and int(part) < 256 for part in parts):
            return ["must not have leading 0s"]
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return [] if str(address) == name else [f"must be in canonical form ({str(address)!r})".replace("'", '"')]


_NAME_CHECKS: Final = {
    "": check_dns1123_subdomain, "address": _check_address, "label": check_dns1123_label, "path": check_path_segment,
}  # fmt: skip


def _served(kind: Kind, details: Mapping[str, Any]) -> ServedKind:
    return ServedKind(
        kind.group,
        kind.name,
        kind.resource,
        short_names=tuple(details.get("short", ())),
        namespaced=kind.namespaced,
        struct=None if kind.type is Object else kind.type,
        subresources=tuple(details.get("subresources", ())),
        in_all=details.get("inAll", False),
        has_generation=details.get("generation", False),
        needs_version=details.get("needsVersion", False),
        status_on_create=details.get("status"),
        fields=tuple(details.get("fields", {}).items()),
        check_name=_NAME_CHECKS[details.get("name", "")],
        version=kind.versions[0],
        verbs=tuple(details.get("verbs", VERBS)),
        gate=details.get("gate", kind.gate),
    )


_DETAILS: Final = _details()

#: Every kind in ``moorage.api.kinds``, in the same order.
KINDS: Final[tuple[ServedKind, ...]] = tuple(
    _served(kind, _DETAILS.get(f"{kind.resource}.{kind.group}".rstrip("."), {})) for kind in kinds.KINDS
)


def _versions(kind: ServedKind) -> Iterator[ServedKind]:
    for version, gate in _DETAILS.get(kind.qualified, {}).get("versions", {}).items():
        yield replace(kind, version=version, stored_as=kind, gate=gate)


#: The other versions of these kinds (``schema.versions``).
VERSIONS: Final[tuple[ServedKind, ...]] = tuple(version for kind in KINDS for version in _versions(kind))

REVIEWS: Final[tuple[Review, ...]] = (
    Review("", "Binding", "bindings", namespaced=True),
    Review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
    Review("authentication.k8s.io", "TokenReview", "tokenreviews"),
    Review("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", namespaced=True),
    Review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    Review("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    Review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
)

#: Kinds that are computed on request and not stored; see ``usage_metrics``.
MEASURED: Final[tuple[ServedKind, ...]] = (
    ServedKind("metrics.k8s.io", "NodeMetrics", "nodes", namespaced=False, version="v1beta1", verbs=("get", "list")),
    ServedKind("metrics.k8s.io", "PodMetrics", "pods", version="v1beta1", verbs=("get", "list")),
)

#: The feature gates that enable kinds, and the groups with their versions that ``--runtime-config`` enables.
ALL_GATES: Final = frozenset(kind.gate for kind in (*KINDS, *VERSIONS) if kind.gate and "/" not in kind.gate)
RUNTIME_CONFIG: Final = frozenset(kind.gate for kind in (*KINDS, *VERSIONS) if "/" in kind.gate and kind.group != _GROUPED)


#: The versions that no ``--runtime-config`` has to add.
_SERVED_ANYWAY: Final = (
    frozenset(one.api_version for one in (*KINDS, *VERSIONS)) | frozenset(one.api_version for one in REVIEWS)
) - RUNTIME_CONFIG


def group_versions(gates: FeatureGates) -> frozenset[str]:
    """Return the versions of pod groups and workloads that the emulated release serves with these gates, as gates of kinds."""
    versions = (f"{_GROUPED}/{version}" for version in gates.emulated.group_versions)
    return frozenset(["GenericWorkload", *versions]) if gates["GenericWorkload"] else frozenset()


def parse_runtime_config(text: str) -> frozenset[str]:
    """Return the groups and versions that a ``--runtime-config`` adds: ``api/beta=true,lifecycle.k8s.io/v1alpha1=true``.

    A version that is served anyway, by default or with a gate, may be named, too.

    Raises  InputError for what is no version that can be added
    """
    added: set[str] = set()
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        stage = name.removeprefix("api/")
        named = {
            one for one in RUNTIME_CONFIG if one == name or (stage != name and (stage == "all" or stage in one.split("/")[1]))
        }
        if value in {"", "true"} and name in _SERVED_ANYWAY:
            continue
        if not named or value not in {"", "true", "false"}:
            known = ", ".join(["api/all", "api/beta", "api/alpha", *sorted(RUNTIME_CONFIG)])
            raise InputError(f"--runtime-config: {part} is no version to add; use NAME=true with one of {known}")
        added = added - named if value == "false" else added | named
    return frozenset(added)


def enabled_kinds(gates: frozenset[str]) -> tuple[ServedKind, ...]:
    """Return the kinds that are served with these gates enabled, in all their versions."""
    return tuple(kind for kind in (*KINDS, *VERSIONS) if kind.is_served(gates))


_BY_RESOURCE: Final = {(kind.group, kind.version, kind.resource): kind for kind in (*KINDS, *VERSIONS, *MEASURED)}


def find_kind(resource: str, group: str = "", version: str = "v1") -> ServedKind | None:
    """Return the kind of a resource name, stored, computed or in another version; or None."""
    return _BY_RESOURCE.get((group, version, resource))


def served(resource: str, group: str = "", version: str = "v1") -> ServedKind:
    """Return the kind of a resource name in a version, which must exist."""
    found = find_kind(resource, group, version)
    if found is None:
        raise LookupError(resource)
    return found


def as_mapping(value: Any) -> Document:
    """Return a value that should be an object; any other is taken as one without fields."""
    return value if isinstance(value, dict) else {}


def set_or_drop(document: Document, name: str, value: Any) -> None:
    """Set a field of a document, or remove it if the value is None."""
    if value is None:
        document.pop(name, None)
    else:
        document[name] = value


# -- kind tables -------------------------------------------------------------------------------------------------------
# The table of the kinds that a server serves: the built-in ones and, while their definitions exist, custom ones.
#
# A table never changes. The server replaces it when a definition changes, so a table identifies a state of all kinds.

_BUILT_IN_GROUPS: Final = frozenset(one.group for one in (*KINDS, *MEASURED)) | {one.group for one in REVIEWS}
_BUILT_IN: Final = {kind.qualified: kind for kind in KINDS}


class KindTable:
    """The kinds of a server. ``gates`` are the enabled feature gates that enable built-in kinds; ``custom`` has one kind for
    each version of each custom kind, whether it is served or only stored. ``server_version`` is the version that the server
    reports.
    """

    def __init__(
        self, gates: Iterable[str] = (), custom: Iterable[ServedKind] = (), server_version: str = CURRENT.version
    ) -> None:
        self.gates: Final = frozenset(gates)
        self.server_version: Final = server_version
        self.custom: Final = tuple(custom)
        served = [kind for kind in self.custom if kind.custom is not None and kind.custom.is_served]
        #: All kinds whose objects are served.
        self.served: Final = (*enabled_kinds(self.gates), *served)
        #: All kinds under which objects are stored, whether they are served or not.
        self.stored: Final = (*KINDS, *(kind for kind in self.custom if kind.stored_as is None))
        self._by_path = {(kind.group, kind.version, kind.resource): kind for kind in served}
        self._by_name = {kind.qualified: kind for kind in self.stored if kind.custom is not None}
        self._groups = {kind.group for kind in served}
        self._types = {(kind.api_version, kind.kind) for kind in served}

    def find(self, resource: str, group: str, version: str) -> ServedKind | None:
        """Return the kind at a path, or None. It may be a built-in kind whose gate is off."""
        return find_kind(resource, group, version) or self._by_path.get((group, version, resource))

    def find_stored(self, qualified: str) -> ServedKind | None:
        """Return the kind under which objects of a resource such as ``widgets.example.com`` are stored."""
        return _BUILT_IN.get(qualified) or self._by_name.get(qualified)

    def has_group(self, group: str) -> bool:
        return group in _BUILT_IN_GROUPS or group in self._groups

    def has_type(self, api_version: str, kind: str) -> bool:
        """Return True if objects of this type are served; gates of built-in kinds are not considered."""
        return (api_version, kind) in _BUILT_IN_TYPES or (api_version, kind) in self._types

    def find_type(self, api_version: str, kind: str) -> ServedKind | None:
        """Return the served kind of an object's ``apiVersion`` and ``kind``, or None."""
        return next((one for one in self.served if (one.api_version, one.kind) == (api_version, kind)), None)


_BUILT_IN_TYPES: Final = frozenset((kind.api_version, kind.kind) for kind in (*KINDS, *VERSIONS))


@cache
def built_in_kinds(gates: frozenset[str], server_version: str = CURRENT.version) -> KindTable:
    """Return the table of a server without custom kinds. Servers alike share it and documents cached for it."""
    return KindTable(gates, (), server_version)


#: Every built-in kind, and those that need no gate.
ALL_KINDS: Final = built_in_kinds(frozenset(kind.gate for kind in (*KINDS, *VERSIONS)))
UNGATED_KINDS: Final = built_in_kinds(frozenset())

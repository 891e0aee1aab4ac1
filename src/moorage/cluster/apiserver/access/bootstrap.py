"""Create the objects that every cluster starts with, and maintain roles and default service accounts while it runs.

Kubernetes leaves this work to controllers, but bindings need the roles and pods need the ``default`` service account. Here
the store does it as part of the change that requires it, so no client sees a cluster without them.

Source  kubernetes, pkg/registry/rbac/rest/storage_rbac.go (bootstrap and reconciliation), pkg/controller/serviceaccount and
        clusterroleaggregation
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.documents.statuses import ApiError
from moorage.api.fields.managed_fields import FieldManager
from moorage.api.rbac import ClusterRole, PolicyRule
from moorage.api.selectors import compile_label_selector
from moorage.basis import table_of
from moorage.cluster.apiserver.access.rbac import missing
from moorage.rules.admission.strategy import decode_document
from moorage.rules.store.detached_store import FollowUp
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange

# The bootstrap roles of a cluster and their bindings, from ``bootstrap.toml``.

_RBAC: Final = "rbac.authorization.k8s.io"
LABEL: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
_TABLE: Final = table_of("moorage.cluster.apiserver.access", "bootstrap.toml")


def _rules_of(rows: Iterable[list[str]]) -> list[Document]:
    """Return the rules of rows with groups, resources, verbs and names, or with paths."""
    return [_rule(*row) for row in rows]


def _rule(groups: str, resources: str, verbs: str, names: str = "") -> Document:
    listed = _TABLE["verbs"].get(verbs, verbs).split()
    if groups == "urls":
        return {"nonResourceURLs": resources.split(), "verbs": listed}
    made = {"apiGroups": ["" if group == "core" else group for group in groups.split()], "resources": resources.split()}
    return {**made, "verbs": listed, **({"resourceNames": names.split()} if names else {})}


def bootstrap_objects(gates: frozenset[str] = frozenset()) -> Iterator[tuple[ServedKind, Document]]:
    """Yield the bootstrap roles and bindings, roles before the bindings that reference them."""
    more = [roles for gate, roles in _TABLE["with_gates"].items() if gate in gates]
    for name, rows in _TABLE["cluster_roles"].items():
        added = [row for roles in more for row in roles.get(name, ())]
        yield served("clusterroles", _RBAC), _object("ClusterRole", name, rules=_rules_of([*rows, *added]))
    for name in ("view", "edit", "admin"):
        selectors = [{"matchLabels": {f"{_AGGREGATE}{name}": "true"}}]
        made = _object("ClusterRole", name, rules=[], aggregationRule={"clusterRoleSelectors": selectors})
        yield served("clusterroles", _RBAC), made
    for name, rows in _TABLE["roles"].items():
        yield served("roles", _RBAC), _object("Role", name, "kube-system", rules=_rules_of(rows))
    for name, subjects in _TABLE["cluster_bindings"].items():
        yield served("clusterrolebindings", _RBAC), _binding("ClusterRoleBinding", name, "", "ClusterRole", name, subjects)
    for name, row in _TABLE["bindings"].items():
        made = _binding("RoleBinding", name, "kube-system", "Role", row["role"], row["subjects"])
        yield served("rolebindings", _RBAC), made


def _binding(kind: str, name: str, namespace: str, role_kind: str, role: str, subjects: list[str]) -> Document:
    kinds = dict.fromkeys(_TABLE["users"]["names"], "User")
    listed = [{"kind": kinds.get(one, "Group"), "apiGroup": _RBAC, "name": one} for one in subjects]
    return _object(kind, name, namespace, subjects=listed, roleRef={"apiGroup": _RBAC, "kind": role_kind, "name": role})


def _object(kind: str, name: str, namespace: str = "", **content: Any) -> Document:
    metadata: Document = {"name": name, "labels": dict(LABEL)}
    metadata["annotations"] = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    if namespace:
        metadata["namespace"] = namespace
    if kind == "ClusterRole" and name in _TABLE["aggregated"]:
        metadata["labels"][f"{_AGGREGATE}{_TABLE['aggregated'][name]}"] = "true"
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}


#: If all cluster roles together are larger than this, in bytes, aggregated roles are updated in a worker thread.
_SMALL: Final = 256 << 10
#: Namespace and name of the config map that publishes the CA bundle for client certificates.
AUTHORITY: Final = ("kube-system", "extension-apiserver-authentication")
_NAMESPACES: Final = served("namespaces")
_ACCOUNTS: Final = served("serviceaccounts")
_PRIORITIES: Final = served("priorityclasses", "scheduling.k8s.io")
_CONFIGS: Final = served("configmaps")
_SERVICES: Final = served("services")
_ROLE_RESOURCE: Final = served("clusterroles", "rbac.authorization.k8s.io")
_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"


def bootstrap_cluster(store: Store) -> None:
    """Create missing roles, bindings and service accounts, and maintain them on every later change of the store."""
    maintainer = _ClusterMaintainer(store)
    store.follow(maintainer.on_change)
    for record in [*store.all(_NAMESPACES)]:
        maintainer.add_account(record)
    if store.find(_SERVICES, "default", "kubernetes") is None:
        store.create(
            _SERVICES, "default", copy.deepcopy(_TABLE["service"]), manager=FieldManager("kube-apiserver", version="v1")
        )
    for name, found in SYSTEM_PRIORITY_CLASSES.items():
        if store.find(_PRIORITIES, "", name) is None:
            wanted = {"metadata": {"name": name}, "value": found.value, "description": found.description}
            made = {"apiVersion": _PRIORITIES.api_version, "kind": "PriorityClass", **wanted}
            store.create(_PRIORITIES, "", made, manager=FieldManager("kube-apiserver", version=_PRIORITIES.api_version))
    with maintainer.aggregating_once():
        for kind, document in bootstrap_objects(store.kinds.gates):
            metadata = document["metadata"]
            held = store.find(kind, metadata.get("namespace", ""), metadata["name"])
            if held is None:
                manager = FieldManager("kube-apiserver", version=kind.api_version)
                store.create(kind, metadata.get("namespace", ""), document, manager=manager)
            else:
                _reconcile(store, kind, held, document)


def _reconcile(store: Store, kind: ServedKind, held: Record, wanted: Document) -> None:
    """Restore rules and subjects missing from a bootstrap role or binding, unless its autoupdate annotation is "false"."""
    document = held.document()
    if (document["metadata"].get("annotations") or {}).get(_AUTOUPDATE) == "false":
        return
    rules, subjects = (document.get(name) or [] for name in ("rules", "subjects"))
    lost = missing(_rules(rules), _rules(wanted.get("rules", [])))
    more = [one for one in wanted.get("subjects", []) if one not in subjects]
    if lost:
        document["rules"] = [*rules, *(msgspec.to_builtins(rule) for rule in lost)]
    if more:
        document["subjects"] = [*subjects, *more]
    if lost or more:
        store.update(kind, held.namespace, held.name, document)


def _rules(documents: list[Document]) -> list[PolicyRule]:
    return msgspec.convert(documents, list[PolicyRule])


class _ClusterMaintainer:
    """Follows the store's changes; creates default service accounts and updates aggregated roles."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._aggregation = FollowUp(store)
        #: Aggregated roles are updated later, and whether they must be.
        self._waits = self._is_due = False

    def on_change(self, kind: ServedKind, change: StoreChange) -> None:
        if kind is _NAMESPACES and not change.gone:
            self.add_account(change.after)
        elif kind is _ACCOUNTS and change.gone and change.after.name == "default":
            home = self._store.find(_NAMESPACES, "", change.after.namespace)
            if home is not None:
                self.add_account(home)
        elif kind is _ROLE_RESOURCE and not self._aggregation.is_active and _affects_aggregation(change):
            self._aggregate()

    @contextmanager
    def aggregating_once(self) -> Iterator[None]:
        """Update aggregated roles at the end of the block, not with each role that it makes."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self._is_due:
            self._aggregate()

    def _aggregate(self) -> None:
        self._is_due = self._waits
        if not self._waits:
            size = sum(len(role.body) for role in self._store.all(_ROLE_RESOURCE))
            self._aggregation.do("cluster roles", _aggregate, is_large=size > _SMALL)

    def add_account(self, namespace: Record) -> None:
        name = namespace.name
        if namespace.fields["status.phase"] != "Terminating" and self._store.find(_ACCOUNTS, name, "default") is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
            self._store.create(_ACCOUNTS, name, account)


def _aggregate(store: Store) -> None:
    """Update the rules of every aggregated cluster role from the roles that it selects."""
    roles = (decode_document(_ROLE_RESOURCE, record.document()) for record in store.all(_ROLE_RESOURCE))
    for name, rules in _aggregated(role for role in roles if isinstance(role, ClusterRole)):
        document = store.get(_ROLE_RESOURCE, "", name).document()
        document["rules"] = [msgspec.to_builtins(rule) for rule in rules]
        with suppress(ApiError):  # the role would be too large, so it keeps its rules
            store.update(_ROLE_RESOURCE, "", name, document)


def _aggregated(roles: Iterable[ClusterRole]) -> list[tuple[str, tuple[PolicyRule, ...]]]:
    """Return the aggregated roles whose rules must change, each with its new rules.

    Aggregated roles may select each other, so rules propagate until nothing changes, for at most as many rounds as there
    are aggregated roles.
    """
    known = {role.metadata.name: role for role in roles}
    sources = {name: _selected(role, known) for name, role in known.items() if role.aggregation_rule is not None}
    rules = {name: role.rules for name, role in known.items()}
    for _ in sources:
        before = dict(rules)
        for name, chosen in sources.items():
            rules[name] = tuple(dict.fromkeys(rule for source in chosen for rule in rules[source]))
        if rules == before:
            break
    return [(name, rules[name]) for name in sources if rules[name] != known[name].rules]


def _selected(role: ClusterRole, known: Mapping[str, ClusterRole]) -> list[str]:
    wanted = role.aggregation_rule.cluster_role_selectors if role.aggregation_rule is not None else ()
    selectors = [compile_label_selector(one) for one in wanted]
    return [
        name for name, other in known.items()
        if other is not role and any(one.matches(other.metadata.labels) for one in selectors)
    ]  # fmt: skip


def _affects_aggregation(change: StoreChange) -> bool:
    """Return True for a change that can affect aggregated roles. Selectors only match roles that have labels."""
    labelled = change.after.labels or (change.before is not None and change.before.labels)
    return bool(labelled) or b"aggregationRule" in change.after.body


def publish_client_ca(store: Store, certificate: bytes, front_proxies: bytes = b"") -> None:
    """Publish the CA bundle for client certificates in the config map that extension API servers read.

    ``front_proxies`` is the CA bundle for front proxies; kube-scheduler keeps logging an error without one.
    """
    (home, name), data = AUTHORITY, {"client-ca-file": certificate.decode()}
    if front_proxies:
        data |= {"requestheader-client-ca-file": front_proxies.decode(), **_TABLE["front_proxies"]}
    held = store.find(_CONFIGS, home, name)
    if held is None:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        store.create(_CONFIGS, home, made)
    else:
        store.change(_CONFIGS, home, name, lambda document: {**document, "data": data})

"""What a cluster has before anybody uses it, and what is kept so while it runs: roles, and every namespace's default account.

Both are work that Kubernetes leaves to controllers, and that everything else counts on: bindings name the roles, and pods run
as the account. It happens right after the change that calls for it, so nobody sees the cluster without.

Source  kubernetes, pkg/registry/rbac/rest/storage_rbac.go (bootstrap and reconciliation), pkg/controller/serviceaccount and
        clusterroleaggregation
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.api.rbac import ClusterRole, PolicyRule
from moorage.api.selectors import compile_label_selector
from moorage.apiserver.access.bootstrap_roles import born_with
from moorage.apiserver.access.rbac_rules import missing
from moorage.apiserver.admission.strategy import read
from moorage.apiserver.fields.managed_fields import FieldManager
from moorage.apiserver.storage.store import Store
from moorage.apiserver.storage.watch_cache import Change
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served

__all__ = ["AUTHORITY", "found_cluster", "publish_authority"]

#: The namespace and the name of the config map that says which authority clients' certificates go back to.
AUTHORITY: Final = ("kube-system", "extension-apiserver-authentication")
#: Which proxies may speak for others, and how: the headers that every cluster has.
_FRONT_PROXIES: Final = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}
#: How the cluster's own API server is called inside of it; the first address of the range for services, which nobody serves.
_ADDRESS: Final = "10.96.0.1"

_NAMESPACES: Final = served("namespaces")
_ACCOUNTS: Final = served("serviceaccounts")
_PRIORITIES: Final = served("priorityclasses", "scheduling.k8s.io")
_CONFIGS: Final = served("configmaps")
_SERVICES: Final = served("services")
_CLUSTER_ROLES: Final = served("clusterroles", "rbac.authorization.k8s.io")
_AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"


def found_cluster(store: Store) -> None:
    """Give a store its roles, bindings and accounts where they are missing, and see to them from now on."""
    keeper = _Keeper(store)
    store.follow(keeper.see)
    for record in [*store.all(_NAMESPACES)]:
        keeper.add_account(record)
    if store.find(_SERVICES, "default", "kubernetes") is None:
        store.create(_SERVICES, "default", _own_service(), manager=FieldManager("kube-apiserver", version="v1"))
    for name, found in SYSTEM_PRIORITY_CLASSES.items():
        if store.find(_PRIORITIES, "", name) is None:
            wanted = {"metadata": {"name": name}, "value": found.value, "description": found.description}
            made = {"apiVersion": _PRIORITIES.api_version, "kind": "PriorityClass", **wanted}
            store.create(_PRIORITIES, "", made, manager=FieldManager("kube-apiserver", version=_PRIORITIES.api_version))
    for kind, document in born_with(store.offers):
        metadata = document["metadata"]
        held = store.find(kind, metadata.get("namespace", ""), metadata["name"])
        if held is None:
            store.create(
                kind, metadata.get("namespace", ""), document, manager=FieldManager("kube-apiserver", version=kind.api_version)
            )
        else:
            _reconcile(store, kind, held, document)


def _own_service() -> Document:
    """Return the service by which pods reach the API server: every cluster has one, and clients look at it for addresses."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    spec = {
        "type": "ClusterIP", "clusterIP": _ADDRESS, "clusterIPs": [_ADDRESS], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}],
    }  # fmt: skip
    metadata = {"name": "kubernetes", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _reconcile(store: Store, kind: ServedKind, held: Record, wanted: Document) -> None:
    """Add the rules and subjects that one of our own roles or bindings lost, unless its owner said not to."""
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


class _Keeper:
    """Follows a store's changes and puts right what belongs together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._aggregating = False

    def see(self, kind: ServedKind, change: Change) -> None:
        if kind is _NAMESPACES and not change.gone:
            self.add_account(change.after)
        elif kind is _ACCOUNTS and change.gone and change.after.name == "default":
            home = self._store.find(_NAMESPACES, "", change.after.namespace)
            if home is not None:
                self.add_account(home)
        elif kind is _CLUSTER_ROLES and _matters(change):
            self._aggregate()

    def add_account(self, namespace: Record) -> None:
        name = namespace.name
        if namespace.fields["status.phase"] != "Terminating" and self._store.find(_ACCOUNTS, name, "default") is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
            self._store.create(_ACCOUNTS, name, account)

    def _aggregate(self) -> None:
        """Give every aggregated role the rules of the roles that it selects."""
        if self._aggregating:
            return
        self._aggregating = True
        try:
            for name, rules in _aggregated(self._cluster_roles()):
                document = self._store.get(_CLUSTER_ROLES, "", name).document()
                document["rules"] = [msgspec.to_builtins(rule) for rule in rules]
                self._store.update(_CLUSTER_ROLES, "", name, document)
        finally:
            self._aggregating = False

    def _cluster_roles(self) -> Iterator[ClusterRole]:
        for record in self._store.all(_CLUSTER_ROLES):
            role = read(_CLUSTER_ROLES, record.document())
            if isinstance(role, ClusterRole):
                yield role


def _aggregated(roles: Iterable[ClusterRole]) -> list[tuple[str, tuple[PolicyRule, ...]]]:
    """Return the aggregated roles whose rules are not those of the roles they select, with what their rules are to be.

    Aggregated roles may select each other, so rules are handed on from role to role until nothing changes. In a circle that
    does not come to rest there are as many rounds as roles.
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
    asked = role.aggregation_rule.cluster_role_selectors if role.aggregation_rule is not None else ()
    selectors = [compile_label_selector(one) for one in asked]
    return [
        name for name, other in known.items()
        if other is not role and any(one.matches(other.metadata.labels) for one in selectors)
    ]  # fmt: skip


def _matters(change: Change) -> bool:
    """Return True where aggregated roles may have to change: only roles with labels are selected."""
    labelled = change.after.labels or (change.before is not None and change.before.labels)
    return bool(labelled) or b"aggregationRule" in change.after.body


def publish_authority(store: Store, certificate: bytes, front_proxies: bytes = b"") -> None:
    """Let programs that serve in the cluster's name know which authority clients' certificates go back to.

    ``front_proxies``: to which those of proxies do, which speak for others. kube-scheduler complains without one for ever.
    """
    (home, name), data = AUTHORITY, {"client-ca-file": certificate.decode()}
    if front_proxies:
        data |= {"requestheader-client-ca-file": front_proxies.decode(), **_FRONT_PROXIES}
    held = store.find(_CONFIGS, home, name)
    if held is None:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        store.create(_CONFIGS, home, made)
    else:
        store.change(_CONFIGS, home, name, lambda document: {**document, "data": data})

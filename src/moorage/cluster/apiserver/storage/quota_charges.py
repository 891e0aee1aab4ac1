"""Charge resource quotas for the changes of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from moorage.cluster.apiserver.admission.quota_admission import charge_quotas
from moorage.cluster.apiserver.admission.quota_usage import Facts
from moorage.cluster.apiserver.fields.managed_fields import FieldManager
from moorage.cluster.apiserver.storage.list_selection import Selection
from moorage.cluster.apiserver.vocabulary.records import Record
from moorage.cluster.apiserver.vocabulary.served_kinds import Document, ServedKind, served

_QUOTAS: Final = served("resourcequotas")
#: The field manager of a quota's status when an object is admitted.
_MANAGER: Final = FieldManager("kube-apiserver", version="v1", subresource="status")


class QuotaStore(Protocol):
    """The methods of ``moorage.cluster.apiserver.storage.store.Store`` that charging quotas uses."""

    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def has_quotas(self) -> bool: ...
    def count(self, kind: ServedKind, /) -> int: ...
    def all(self, kind: ServedKind, selection: Selection, /) -> Iterable[Record]: ...
    def find(self, kind: ServedKind, namespace: str, name: str, /) -> Record | None: ...
    def update(
        self, kind: ServedKind, namespace: str, name: str, document: Document, /, *, subresource: str, manager: FieldManager
    ) -> object: ...


def quotas_to_charge(
    store: QuotaStore, kind: ServedKind, namespace: str, old: Document | None, new: Document, subresource: str = ""
) -> list[Document]:  # fmt: skip
    """Return the quotas that a change charges, with their new usage.

    Raises  ApiError 403 if a quota would be exceeded
    """
    if not namespace or not store.count(_QUOTAS) or not store.has_quotas:
        return []

    def every(kind: ServedKind, namespace: str) -> Iterator[Document]:
        return (record.document() for record in store.all(kind, Selection(namespace or None)))

    def find(kind: ServedKind, namespace: str, name: str) -> Document | None:
        held = store.find(kind, namespace, name)
        return None if held is None else held.document()

    quotas = [*every(_QUOTAS, namespace)]
    return charge_quotas(kind, old, new, subresource, quotas, Facts(store.clock(), every, find)) if quotas else []


def store_charged_quotas(store: QuotaStore, quotas: Iterable[Document]) -> None:
    """Store charged quotas. The caller stores the object itself directly afterwards."""
    for quota in quotas:
        metadata = quota["metadata"]
        store.update(_QUOTAS, metadata["namespace"], metadata["name"], quota, subresource="status", manager=_MANAGER)

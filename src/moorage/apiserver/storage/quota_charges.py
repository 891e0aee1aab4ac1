"""Resource quotas and the store: what they are told of a change, and how what it takes is written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from moorage.apiserver.admission.quota_admission import charge_quotas
from moorage.apiserver.admission.quota_types import Facts
from moorage.apiserver.fields.managed_fields import FieldManager
from moorage.apiserver.storage.list_selection import Selection
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served

if TYPE_CHECKING:
    from moorage.apiserver.storage.store import Store

__all__ = ["charge", "charges"]

_QUOTAS: Final = served("resourcequotas")
#: Who is said to change a quota's status when an object is admitted.
_CHARGING: Final = FieldManager("kube-apiserver", version="v1", subresource="status")


def charges(
    store: Store, kind: ServedKind, namespace: str, old: Document | None, new: Document, subresource: str = ""
) -> list[Document]:  # fmt: skip
    """Return the quotas that a change is charge_quotas to, as they are to become.

    Raises  ApiError 403 where there is not enough left
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


def charge(store: Store, quotas: Iterable[Document]) -> None:
    """Keep quotas that a change is charge_quotas to. Right after it, the change itself has to be kept."""
    for quota in quotas:
        metadata = quota["metadata"]
        store.update(_QUOTAS, metadata["namespace"], metadata["name"], quota, subresource="status", manager=_CHARGING)

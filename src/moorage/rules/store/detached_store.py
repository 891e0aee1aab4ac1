"""A view of the store for another thread: it reads in that thread, and makes changes on the store's own thread.

It records everything it reads. A change is made only if everything that was read is still unchanged; otherwise the request is
retried with the new state. So each change is as valid as one made on the store's own thread.

Records are immutable, and a lookup or a copy of the key list is one step of the interpreter, so reads need no lock.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import msgspec

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.rules.store.definitions import AskOwner
from moorage.rules.store.deletion import NO_OPTIONS, DeleteOptions
from moorage.rules.store.list_selection import ALL, Selection
from moorage.rules.store.object_reader import ListPage
from moorage.rules.store.policy_requests import as_requester, requester
from moorage.rules.store.store import DeletionResult, Store, check_size
from moorage.rules.store.watches import StoreChange, between

T = TypeVar("T")
_NAMESPACES: Final = served("namespaces")
_TRIES: Final = 5
#: Objects up to this size, in bytes, are deleted on the store's own thread, which takes about a millisecond.
_SMALL: Final = 32 << 10


class StaleReadError(Exception):
    """An object that was read has changed, so the pending change may be invalid."""


def retried(store: Store, ask: AskOwner, work: Callable[[Store], T]) -> T | None:
    """Call ``work`` with a view of the store, in a worker thread; return None if each attempt failed with StaleReadError."""
    for _ in range(_TRIES):
        with suppress(StaleReadError):
            return work(DetachedStore(store, ask))
    return None


class FollowUp:
    """Work that follows changes of a store, and changes the store itself. ``is_active``: a change is one of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_active = False

    def do(self, key: Hashable, work: Callable[[Store], None], *, is_large: bool) -> None:
        """Do some work at once or, if it is large, in a worker thread."""
        if self._store.defer is None or not is_large:
            self._change(lambda: work(self._store))
        else:
            self._store.defer(key, lambda ask: retried(self._store, lambda change: ask(lambda: self._change(change)), work))

    def _change(self, change: Callable[[], T]) -> T:
        self.is_active = True
        try:
            return change()
        finally:
            self.is_active = False


class _Listed(NamedTuple):
    version: int
    records: list[Record]


class DetachedStore(Store):
    """A store for one request that runs in another thread than the store's.

    Every call that changes something may raise ``StaleReadError``.
    """

    def __init__(self, store: Store, ask: AskOwner) -> None:
        vars(self).update(vars(store))
        self._store = store
        self._ask = ask
        #: Placeholder for the version of the pending change. No client can guess it.
        self._placeholder = secrets.randbits(62) | 1 << 62
        self._followers = []
        #: True once something was stored.
        self.has_changed = False
        self._looked_up: dict[tuple[ServedKind, str], Record | None] = {}
        self._listed: dict[tuple[ServedKind, str | None], _Listed] = {}

    def _stored_record(self, kind: ServedKind, key: str) -> Record | None:
        place = kind, key
        if place not in self._looked_up:
            self._looked_up[place] = self._store._stored_record(kind, key)
        return self._looked_up[place]

    def _stored_records(self, kind: ServedKind, selection: Selection) -> Iterator[Record]:
        key = kind, selection.namespace
        if key not in self._listed:
            version = self._kind_store(kind).version
            self._listed[key] = _Listed(version, self._list(kind, selection.namespace))
        return filter(selection.matches, self._listed[key].records)

    def _list(self, kind: ServedKind, namespace: str | None) -> list[Record]:
        kind_store = self._kind_store(kind)
        keys = kind_store.keys.copy()
        return [record for i in between(keys, namespace, "") if (record := kind_store.records.get(keys[i])) is not None]

    def page(
        self, kind: ServedKind, selection: Selection = ALL, *,
        limit: int = 0, token: str = "", version: str = "", match: str = "",
    ) -> ListPage:  # fmt: skip
        # The keys of the store change while a page is made of them, unless that is done on the store's thread.
        return self._ask(lambda: self._store.page(kind, selection, limit=limit, token=token, version=version, match=match))

    def count(self, kind: ServedKind) -> int:
        return sum(1 for _ in self.all(kind))

    # -- changing ------------------------------------------------------------------------------------------------------

    def delete(
        self, kind: ServedKind, namespace: str, name: str, options: DeleteOptions = NO_OPTIONS, *, dry_run: bool = False,
        sent: ServedKind | None = None,
    ) -> DeletionResult:  # fmt: skip
        record = self.get(kind, namespace, name)
        if kind is not _NAMESPACES and len(record.body) > _SMALL:
            return super().delete(kind, namespace, name, options, dry_run=dry_run, sent=sent)
        asks = requester()

        def delete() -> DeletionResult:
            # The thread of the store has another context.
            with as_requester(asks):
                return self._store.delete(kind, namespace, name, options, dry_run=dry_run, sent=sent)

        return self._ask(delete)

    def _keep(self, kind: ServedKind, before: Record | None, after: Record, charges: Sequence[Document]) -> Record:
        check_size(after)

        def keep() -> Record:
            self._store.store_charged_quotas(charges)
            return self._store._commit(kind, before, self._numbered(after))

        return self._change(kind, before, after, keep)

    def _commit(self, kind: ServedKind, before: Record | None, after: Record) -> Record:
        return self._change(kind, before, after, lambda: self._store._commit(kind, before, self._numbered(after)))

    def _drop(self, kind: ServedKind, record: Record, gone: Record) -> DeletionResult:
        return self._change(kind, record, gone, lambda: self._store._drop(kind, record, self._numbered(gone)))

    def _change(self, kind: ServedKind, before: Record | None, after: Record, change: Callable[[], T]) -> T:
        def checked() -> T:
            # On the store's own thread: everything that was read must be unchanged.
            if any(one not in self._kind_stores for one, _ in (*self._looked_up, *self._listed)):
                raise StaleReadError
            for (one, key), record in self._looked_up.items():
                if self._kind_stores[one].records.get(key) is not record:
                    raise StaleReadError
            for (one, namespace), listed in self._listed.items():
                if self._kind_stores[one].version != listed.version:
                    now = self._list(one, namespace)
                    if len(now) != len(listed.records) or any(a is not b for a, b in zip(now, listed.records, strict=True)):
                        raise StaleReadError
            if self._store._stored_record(kind.storage, after.key) is not self._stored_before(kind, before):
                raise StaleReadError
            return change()

        made = self._ask(checked)
        self.has_changed = True
        self._looked_up.clear()
        self._listed.clear()
        return made

    def _next_version(self) -> int:
        return self._placeholder

    def _numbered(self, record: Record) -> Record:
        """Return a record with the store's next version."""
        version = self._store.version + 1
        body = record.body.replace(b'"%d"' % record.version, b'"%d"' % version, 1)
        return msgspec.structs.replace(record, version=version, body=body)

    def follow(self, follower: Callable[[ServedKind, StoreChange], None]) -> None:
        """Do nothing: this store never notifies followers, and does not outlive the request."""

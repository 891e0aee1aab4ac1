"""Read the objects of a store: lookups, pages of lists, and watches, of every kind and version that is served."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.documents.records import Record, key_of
from moorage.api.documents.resource_versions import parse_version, parse_version_of_one
from moorage.api.documents.served_kinds import KindTable, ServedKind, built_in_kinds
from moorage.api.documents.statuses import bad_request, expired, not_found, not_found_path, timeout
from moorage.api.releases import CURRENT
from moorage.rules.store.custom_records import convert_record, reread_record
from moorage.rules.store.list_selection import ALL, Selection
from moorage.rules.store.watches import KindStore, Watch, between, matching

# Continue tokens of lists: position and resource version of the next page, signed against forgery.
#
# Source  apiserver, pkg/storage/continue.go, for the messages; the token format is our own

_MAX_TOKEN: Final = 4096
_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
#: The version of a token that goes on with the current objects.
_LATEST: Final = -1


class ListPosition(NamedTuple):
    """The resource version that a list shows, and the key after which its next page starts."""

    version: int
    after: str


class _Token(msgspec.Struct, frozen=True, array_like=True):
    version: int
    after: str
    resource: str
    namespace: str | None


def write_token(key: bytes, kind: ServedKind, namespace: str | None, position: ListPosition) -> str:
    """Return the token for the next page of a list of one kind, in one namespace or in all (None)."""
    body = msgspec.json.encode(_Token(position.version, position.after, kind.qualified, namespace))
    return base64.urlsafe_b64encode(_signature(key, body) + body).decode().rstrip("=")


def read_token(key: bytes, kind: ServedKind, namespace: str | None, text: str) -> ListPosition:
    """Return the position in a token.

    Raises  ApiError 400 for a token that this server did not sign or that belongs to another list
    """
    invalid_token = bad_request("invalid continue token: continue key is not valid")
    if len(text) > _MAX_TOKEN or not text.isascii():
        raise invalid_token
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise invalid_token from None
    signature, body = raw[:16], raw[16:]
    if not hmac.compare_digest(signature, _signature(key, body)):
        raise invalid_token
    token: Any = msgspec.json.decode(body, type=_Token)
    if (token.resource, token.namespace) != (kind.qualified, namespace):
        raise invalid_token
    return ListPosition(token.version, token.after)


def _signature(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:16]


class ListPage(NamedTuple):
    """One page of a list. ``remaining`` is None if the remaining objects were not counted."""

    records: list[Record]
    version: int
    token: str = ""
    remaining: int | None = None


class ObjectReader:
    """The objects of a cluster, by kind. ``kinds`` are those that are served at the moment.

    ``lists_by_watch``: whether watches may start with a list (watch-list); kube-apiserver on etcd before 3.5.11 does not
    support that.
    """

    def __init__(self, gates: frozenset[str], signing_key: bytes, capacity: int, server_version: str = CURRENT.version) -> None:
        self.version = 1
        self.kinds = built_in_kinds(gates, server_version)
        self.lists_by_watch = True
        self._signing_key = signing_key
        self._compacted = 0
        self._capacity = capacity
        self._kind_stores = {kind: KindStore(capacity) for kind in self.kinds.stored}
        self._object_counts: Counter[str] = Counter()

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def serve_custom_kinds(self, custom: Iterable[ServedKind]) -> None:
        """Serve exactly these custom kinds from now on.

        The objects of a kind whose schema or storage version changed are read again, and its watches end. Objects of kinds that
        are no longer served are dropped; the caller deletes them first.
        """
        rows = tuple(custom)
        gates, server_version = self.kinds.gates, self.kinds.server_version
        table = KindTable(gates, rows, server_version) if rows else built_in_kinds(gates, server_version)
        before, self.kinds = self.kinds, table
        old = {kind.qualified: kind for kind in before.stored if kind.custom is not None}
        for kind in table.stored:
            if kind.custom is not None:
                self._adopt_kind(kind, old.pop(kind.qualified, None))
        for kind in old.values():
            self._kind_stores.pop(kind).end()

    def _adopt_kind(self, kind: ServedKind, before: ServedKind | None) -> None:
        """Store objects under ``kind`` from now on, including those stored under ``before``, its previous definition."""
        if before is None:
            self._kind_stores[kind] = KindStore(self._capacity, self.version)
        elif before is not kind:
            held = self._kind_stores.pop(before)
            self._kind_stores[kind] = held if _reads_alike(kind, before) else self._reread(kind, held)

    def _reread(self, kind: ServedKind, held: KindStore) -> KindStore:
        made = KindStore(self._capacity, self.version)
        made.records = {key: reread_record(kind, record) for key, record in held.records.items()}
        made.keys = held.keys
        held.end()
        return made

    def find_stored_kind(self, qualified: str) -> ServedKind | None:
        """Return the kind under which objects of a resource such as ``widgets.example.com`` are stored at the moment."""
        return self.kinds.find_stored(qualified)

    def _kind_store(self, kind: ServedKind) -> KindStore:
        """Return the objects of a stored kind.

        Raises  ApiError 404 for a custom kind whose definition has changed since the caller looked it up
        """
        try:
            return self._kind_stores[kind]
        except KeyError:
            raise not_found_path() from None

    def find(self, kind: ServedKind, namespace: str, name: str) -> Record | None:
        record = self._stored_record(kind.storage, key_of(namespace, name))
        return None if record is None else _shown(kind, record)

    def _stored_record(self, kind: ServedKind, key: str) -> Record | None:
        return self._kind_store(kind).records.get(key)

    def get(self, kind: ServedKind, namespace: str, name: str) -> Record:
        """Return an object.

        Raises  ApiError 404
        """
        record = self.find(kind, namespace, name)
        if record is None:
            raise not_found(kind.resource, kind.group, name)
        return record

    def all(self, kind: ServedKind, selection: Selection = ALL) -> Iterator[Record]:
        """Yield the selected objects of a kind in key order."""
        if kind.stored_as is None:
            return self._stored_records(kind, selection)
        records = self._stored_records(kind.storage, Selection(selection.namespace))
        return filter(selection.matches, (_shown(kind, record) for record in records))

    def _stored_records(self, kind: ServedKind, selection: Selection) -> Iterator[Record]:
        held = self._kind_store(kind)
        return matching(held.records, held.keys, selection)

    def count(self, kind: ServedKind) -> int:
        return len(self._kind_store(kind.storage).records)

    def page(
        self, kind: ServedKind, selection: Selection = ALL, *,
        limit: int = 0, token: str = "", version: str = "", match: str = "",
    ) -> ListPage:  # fmt: skip
        """Return a page of the current objects, or of a list as it was at its first page.

        ``version`` with ``match`` "Exact" selects the state at that version, otherwise a state that is at least as new.

        Raises  ApiError 400 for invalid arguments, 410 for a version no longer cached, 504 for a future version
        """
        kind_store = self._kind_store(kind.storage)
        if limit < 0 or (version == "0" and match != "Exact" and not token):
            limit = 0  # a list at any version is not paged
        if token:
            if version not in {"", "0"}:
                raise bad_request("specifying resource version is not allowed when using continue")
            position = read_token(self._signing_key, kind, selection.namespace, token)
            if position.version == _LATEST:
                position = position._replace(version=self.version)
        else:
            position = ListPosition(self._resolve_version(version, match or ("Exact" if limit and version != "0" else "")), "")
        if position.version == self.version:
            records, keys = kind_store.records, kind_store.keys
        else:
            is_kept = position.version >= self._compacted
            state = kind_store.history.state_at(position.version, kind_store.records) if is_kept else None
            if state is None and token:
                rest = ListPosition(_LATEST, position.after)
                raise expired(_TOO_OLD, write_token(self._signing_key, kind, selection.namespace, rest))
            if state is None:
                raise expired("The resourceVersion for the provided list is too old.")
            records, keys = state, sorted(state)
        return self._page_from(kind, selection, limit, position, records, keys)

    def _page_from(
        self, kind: ServedKind, selection: Selection, limit: int, position: ListPosition, records: Mapping[str, Record],
        keys: list[str],
    ) -> ListPage:  # fmt: skip
        found = [*islice(matching(records, keys, selection, position.after, _view(kind)), limit or None)]
        after = found[-1].key if found else ""
        # More objects of the namespace or kind count even if the selectors do not match them.
        if not limit or len(found) < limit or not (following := between(keys, selection.namespace, after)):
            return ListPage(found, position.version)
        token = write_token(self._signing_key, kind, selection.namespace, ListPosition(position.version, after))
        remaining = len(following) if selection.is_everything else None
        return ListPage(found, position.version, token, remaining)

    def _resolve_version(self, version: str, match: str) -> int:
        wanted = parse_version(version)
        if wanted > self.version:
            raise timeout(wanted, self.version)
        return wanted if match == "Exact" and wanted else self.version

    def watch(
        self, kind: ServedKind, selection: Selection, version: str, wake: Callable[[], None], *, initial: bool | None = None
    ) -> Watch:
        """Start a watch after a version, or from now on.

        ``initial``: start with an ADDED event for every existing object; None: only if the version is "" or "0". A watch after
        a future version waits for it.

        Raises  ApiError 500 for an invalid version, 410 for one no longer cached, 504 for a future one with ``initial``
        """
        wanted = parse_version_of_one(version)
        if wanted > self.version and initial:
            raise timeout(wanted, self.version)
        kind_store = self._kind_store(kind.storage)
        lists = initial or (initial is None and not wanted)
        if wanted and not lists:
            kind_store.history.check(wanted)
        after = wanted if wanted and not lists else self.version
        watch = Watch(kind_store, selection, wake, after, lists=lists, view=_view(kind))
        kind_store.history.followers.append(watch)
        return watch

    def compact(self, version: int) -> None:
        """Forget the changes up to a version; watches still get the last ones of each kind. Others, and lists, get 410."""
        self._compacted = version
        for kind_store in self._kind_stores.values():
            kind_store.history.compact(version)

    def unwatch(self, kind: ServedKind, watch: Watch) -> None:
        watch.closed = True
        held = self._kind_stores.get(kind.storage)
        if held is not None and watch in held.history.followers:
            held.history.followers.remove(watch)


def _reads_alike(kind: ServedKind, before: ServedKind) -> bool:
    """Return True if a kind decodes stored objects in the same way before and after a change of its definition."""
    if kind.custom is None or before.custom is None:
        return kind is before
    same_fields = (kind.api_version, kind.kind, kind.fields) == (before.api_version, before.kind, before.fields)
    return same_fields and kind.custom.schema == before.custom.schema


def _shown(kind: ServedKind, record: Record) -> Record:
    """Return a stored object in the version of a kind."""
    return record if kind.stored_as is None else convert_record(kind, kind.stored_as, record)


def _view(kind: ServedKind) -> Callable[[Record], Record] | None:
    """Return the function that converts stored objects to a kind's version; None if they are stored in that version."""
    return None if kind.stored_as is None else lambda record: _shown(kind, record)

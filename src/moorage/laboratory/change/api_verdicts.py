"""What the API server says of requests: dry runs at a store with the objects that admission and validation read.

The admission policies of the input take part. They read more of an object than scheduling does, so objects are judged as they
were written, with what has changed since. Of an object that is not there as it was written, only a part is known: a request is
not refused for what that part had before.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from moorage.api.admission import RuntimeClass
from moorage.api.core import LimitRange, Namespace, Object
from moorage.api.documents.http_messages import User
from moorage.api.workloads import PriorityClass
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.errors import MoorageError
from moorage.laboratory.surroundings import Surroundings
from moorage.simulator.admission_policies import MANIFEST_USER, adopt_policies, document_of, plain_document

if TYPE_CHECKING:
    from moorage.api.documents.served_kinds import ServedKind
    from moorage.rules.store.store import Store

_KINDS: Final = {kind.type: kind for kind in KINDS}
#: Objects that admission looks up.
_LOOKED_UP: Final = (Namespace, PriorityClass, RuntimeClass, LimitRange)
#: The name of an object that would be created; the requests for it are dry runs.
_NEW: Final = "created-again"


class ApiVerdicts:
    """An API server that judges requests about the objects of a cluster."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._written = around.written

    def document(self, obj: Object) -> dict[str, Any]:
        """Return the document of an object as the API server holds it."""
        store, kind = self._store, self._served(type(obj))
        namespace = obj.metadata.namespace if kind.namespaced else ""
        held = store.find(kind, namespace, obj.metadata.name)
        if held is None:
            _adopt(store, kind, self._as_written(obj))
            held = store.find(kind, namespace, obj.metadata.name)
        return self._as_written(obj) if held is None else held.document()

    def has(self, struct: type[Object], namespace: str, name: str) -> bool:
        """Return whether there is an object of this kind and name."""
        return self._store.find(self._served(struct), namespace, name) is not None

    def why_not_updated(self, struct: type[Object], namespace: str, name: str, document: Mapping[str, Any]) -> str:
        """Return why a new version of an object is refused; of an object that is known in part, unless it is so already."""
        kind, store = self._served(struct), self._store
        held = store.find(kind, namespace, name)
        if held is None:
            return ""

        def update(document: Any) -> object:
            return store.update(kind, namespace, name, json.loads(json.dumps(document)), dry_run=True)

        why = self._refused(lambda: update(document))
        if not why or self.is_complete(struct, namespace, name):
            return why
        return "" if self._refused(lambda: update(held.document())) == why else why

    def is_complete(self, struct: type[Object], namespace: str, name: str) -> bool:
        """Return whether an object is there as it was written."""
        return self._written is not None and (_KINDS[struct].slot, namespace, name) in self._written.objects

    def why_not_created(
        self, struct: type[Object], namespace: str, document: Mapping[str, Any], user: User = MANIFEST_USER
    ) -> tuple[str, dict[str, Any] | None]:
        """Return why a new object is refused, and otherwise the object after admission. It gets a name of its own."""
        sent: dict[str, Any] = json.loads(json.dumps(document))
        metadata = sent["metadata"]
        for name in ("resourceVersion", "uid"):  # as kubectl does
            metadata.pop(name, None)
        metadata["name"] = _NEW
        sent.pop("status", None)
        made: list[dict[str, Any]] = []

        def create() -> None:
            made.append(self._store.create(self._served(struct), namespace, sent, dry_run=True).document())

        why = self._refused(create, user)
        return (why, None) if why else ("", made[0])

    def create(self, struct: type[Object], document: Mapping[str, Any]) -> str:
        """Create an object that has no namespace, for the requests that follow. Return why it is refused."""
        return self._refused(lambda: self._store.create(self._served(struct), "", dict(document)))

    def why_not_deleted(self, obj: Object) -> str:
        """Return why a policy refuses to delete an object."""
        policies = self._store.policies
        if not policies.are_in_force:
            return ""
        document = self.document(obj)
        return self._refused(lambda: policies.check(self._served(type(obj)), document, None, dry_run=True))

    def why_not_evicted(self, pod: Object) -> str:
        """Return why a policy refuses to evict a pod."""
        from moorage.rules.store.policy_requests import request_for

        if not self._store.policies.are_in_force:
            return ""
        names = pod.metadata
        eviction = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names.name, "namespace": names.namespace},
        }  # fmt: skip
        kind, namespace = self._served(type(pod)), names.namespace
        asked = request_for(kind, None, eviction, "eviction", name=names.name, namespace=namespace, dry_run=True)
        return self._refused(lambda: self._store.policies.check_request(asked))

    def why_not_scaled(self, obj: Object, replicas: int) -> str:
        """Return why a policy refuses another number of replicas: of the scale, or of the workload that has it."""
        from moorage.rules.store.policy_requests import request_for
        from moorage.rules.store.subresources import read_scale

        if not self._store.policies.are_in_force:
            return ""
        kind, document, names = self._served(type(obj)), self.document(obj), obj.metadata
        before = read_scale(kind, document)
        after = {**before, "spec": {"replicas": replicas}}
        asked = request_for(kind, before, after, "scale", name=names.name, namespace=names.namespace, dry_run=True)
        return self._refused(lambda: self._store.policies.check_request(asked))

    def _refused(self, request: Callable[[], object], user: User = MANIFEST_USER) -> str:
        from moorage.api.documents.statuses import ApiError
        from moorage.rules.store.policy_requests import requested_by

        try:
            with requested_by(user):
                request()
        except ApiError as error:
            return str(error)
        return ""

    def _as_written(self, obj: Object) -> dict[str, Any]:
        kind = _KINDS[type(obj)]
        text = None
        if self._written is not None:
            text = self._written.objects.get((kind.slot, obj.metadata.namespace, obj.metadata.name))
        return plain_document(kind, obj) if text is None else document_of(kind, obj, text)

    @cached_property
    def _store(self) -> Store:
        from moorage.rules.store.store import Store  # takes long to load

        store = Store(lambda: 0.0, random.Random(0), b"")  # noqa: S311  # draws names, no secrets
        store.has_quotas = False
        for struct in _LOOKED_UP:
            for obj in self._around.all_of(struct):
                _adopt(store, _kind_in(store, struct), plain_document(_KINDS[struct], obj))
        if self._written is not None:
            adopt_policies(store, self._written)
        return store

    def serves(self, struct: type[Object]) -> bool:
        """Return whether the API server has a kind."""
        known = _KINDS[struct]
        return self._store.kinds.find_type(known.api_version, known.name) is not None

    def _served(self, struct: type[Object]) -> ServedKind:
        return _kind_in(self._store, struct)


def _kind_in(store: Store, struct: type[Object]) -> ServedKind:
    known = _KINDS[struct]
    found = store.kinds.find_type(known.api_version, known.name)
    assert found is not None
    return found


def _adopt(store: Store, kind: ServedKind, document: dict[str, Any]) -> None:
    """Store an object of the input; what no API server can have had is left out."""
    from moorage.api.documents.statuses import ApiError

    namespace = document["metadata"].get("namespace") or ""
    if store.find(kind, namespace, document["metadata"]["name"]) is not None:
        return
    try:
        store.adopt(kind, document)
    except (ApiError, MoorageError, msgspec.ValidationError):
        return

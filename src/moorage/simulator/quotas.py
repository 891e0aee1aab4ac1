"""Resource quotas of an input: how much of each is used, and whether another object fits.

The code of the API server's admission plugin enforces them. The initial usage is the larger of the usage in the quota's status
and that of the objects in the input, so that a partial dump gives the results of the whole cluster. The limits are those of
``spec``: a cluster's controller copies them to ``status`` at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Final, Self, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Object, Pod, ResourceQuota
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.documents.statuses import forbidden
from moorage.api.kinds import KIND_OF_TYPE
from moorage.api.quantity import Exact, exact
from moorage.api.requirements import quoted
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.report.outcome import QuotaAmount, QuotaLimit
from moorage.rules.admission import quota_usage
from moorage.rules.admission.quota_admission import QuotaRefusal, charged_or_refused
from moorage.simulator.cluster_input import ClusterInput

_PODS: Final = served("pods")
_POD_USAGE: Final = cast(quota_usage.QuotaEvaluator, quota_usage.evaluator_for(_PODS))
_ZERO: Final = exact("0")
#: Group and name of a kind → the field of the input that has its objects.
_SLOT_OF: Final = {(kind.group, kind.name): kind.slot for kind in KINDS}


class QuotaCharge(Struct, frozen=True):
    """What an object would add to a resource of a quota, beside what is used and may be. Amounts are Kubernetes quantities."""

    quota: str
    resource: str
    asked: str
    used: str
    hard: str


class Refused(Struct, frozen=True):
    """The reason why the API server would not create an object; ``why`` is its text.

    ``by``     ``ResourceQuota``, ``LimitRange``, ``ValidatingAdmissionPolicy`` or ``MutatingAdmissionPolicy``
    ``quota``  the name of the quota that refuses it
    ``charges``        what the object would add to all quotas of its namespace
    ``makes_invalid``  it does not refuse the object, but changes it so that it is invalid
    """

    resource: str
    name: str
    why: str
    by: str = "ResourceQuota"
    quota: str = ""
    shortages: tuple[QuotaAmount, ...] = ()
    group: str = ""
    makes_invalid: bool = False
    charges: tuple[QuotaCharge, ...] = ()

    @property
    def message(self) -> str:
        """The API server's message: ``pods "web-0" is forbidden: exceeded quota: compute, requested: …``."""
        if self.makes_invalid:
            return f"Pod {quoted(self.name)} is invalid: {self.why}"
        return str(forbidden(self.resource, self.group, self.name, self.why))


class QuotaRoom(Struct, frozen=True):
    """How many more pods like a given one the quotas allow (None: no limit), and why the next one is refused."""

    count: int | None
    refused: Refused | None = None


def is_new(pod: Pod) -> bool:
    """Return True for a pod that does not exist yet: it has no creation time, which a dump's pods have, and no node."""
    return pod.metadata.creation_timestamp is None and not pod.spec.node_name


@dataclass
class QuotaLedger:
    """The quotas of a cluster with their usage. ``charge`` adds the usage of a created object.

    The usage of a namespace is computed when the first of its objects is charged.
    """

    _given: dict[str, list[ResourceQuota]]
    _facts: quota_usage.Facts
    _measured: dict[str, list[Document]] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: ClusterInput) -> Self:
        """Return the ledger of a cluster whose new pods are not charged yet."""
        facts = _facts_of(cluster)
        ledger = cls({}, facts)
        for quota in cluster.resource_quotas:
            if quota.metadata.deletion_timestamp is None:
                ledger._given.setdefault(quota.namespace, []).append(quota)
        return ledger

    def __bool__(self) -> bool:
        return bool(self._given)

    def _quotas(self, namespace: str) -> list[Document]:
        """Return the quotas of a namespace as documents whose status has their limits and their usage."""
        if namespace not in self._measured:
            self._measured[namespace] = [_measured(quota, self._facts) for quota in self._given.get(namespace, ())]
        return self._measured[namespace]

    def usage(self) -> Iterator[Document]:
        """Yield every quota as a document whose status has its limits and its usage."""
        for namespace in sorted(self._given):
            yield from self._quotas(namespace)

    def copy(self) -> Self:
        """Return an independent ledger in the same state."""
        return type(self)(self._given, self._facts, dict(self._measured))

    def charge(self, obj: Object) -> Refused | None:
        """Add the usage of a new object; return why the quotas refuse it, None if they allow it."""
        namespace = obj.metadata.namespace
        quotas = self._quotas(namespace)
        if not quotas:
            return None
        kind, document = _served(obj), _document(obj)
        found = charged_or_refused(kind, None, document, "", quotas, self._facts)
        if isinstance(found, QuotaRefusal):
            shortages = tuple(
                QuotaAmount(resource, str(asked), str(found.used[resource]), str(found.hard[resource]))
                for resource, asked in found.requested.items()
            )
            charges = tuple(self._charges(obj)) if isinstance(obj, Pod) else ()
            name = obj.metadata.name
            return Refused(kind.qualified, name, found.why, quota=found.quota, shortages=shortages, charges=charges)
        changed = {one["metadata"]["name"]: one for one in found}
        self._measured[namespace] = [changed.get(one["metadata"]["name"], one) for one in quotas]
        return None

    def _charges(self, pod: Pod) -> Iterator[QuotaCharge]:
        for quota in self._quotas(pod.namespace):
            status = quota["status"]
            for name, amount in _charge_of(quota, pod, self._facts).items():
                yield QuotaCharge(
                    quota["metadata"]["name"], name, str(amount), str(status["used"][name]), str(status["hard"][name])
                )

    def count(self, pod: Pod) -> None:
        """Add the usage of a pod, also beyond the limits."""
        quotas = self._quotas(pod.namespace)
        self._measured[pod.namespace] = [_raised(one, _charge_of(one, pod, self._facts), 1) for one in quotas]

    def release(self, pod: Pod) -> None:
        """Subtract the usage of a pod that has ended or was deleted."""
        quotas = self._quotas(pod.namespace)
        self._measured[pod.namespace] = [_raised(one, _charge_of(one, pod, self._facts), -1) for one in quotas]

    def refusal(self, obj: Object) -> Refused | None:
        """Return why an object would be refused if it were created now; None if it would be created."""
        self._quotas(obj.metadata.namespace)  # computes the usage here, so that copies need not compute it
        return self.copy().charge(obj)

    def charge_up_to(self, pod: Pod, count: int) -> tuple[int, Refused | None]:
        """Charge as many pods like this one as the quotas allow, at most ``count``.

        Return how many, and why the next one is refused; None if all ``count`` are charged.
        """
        refused = self.refusal(pod)
        if refused is not None:
            return 0, refused
        quotas = self._quotas(pod.namespace)
        charges = [_charge_of(quota, pod, self._facts) for quota in quotas]
        rooms = [_times(quota, charge) for quota, charge in zip(quotas, charges, strict=True)]
        allowed = min(count, *(room for room in rooms if room is not None), count)
        self._measured[pod.namespace] = [_raised(one, charge, allowed) for one, charge in zip(quotas, charges, strict=True)]
        return allowed, self.refusal(pod) if allowed < count else None

    def room(self, pod: Pod, limit: int = 1_000_000) -> QuotaRoom:
        """Return how many more pods like this one the quotas allow; more than ``limit`` counts as no limit."""
        self._quotas(pod.namespace)
        allowed, refused = self.copy().charge_up_to(pod, limit)
        return QuotaRoom(allowed, refused) if refused is not None else QuotaRoom(None)


def _charge_of(quota: Document, pod: Pod, facts: quota_usage.Facts) -> quota_usage.Usage:
    """Return the usage that a pod adds to a quota, by resource; empty if the pod is not in the quota's scopes."""
    held = _document(pod)
    spec = msgspec.convert(quota, ResourceQuota).spec
    used = _POD_USAGE.usage(held, facts) if quota_usage.is_in_scope(_POD_USAGE, spec, held) else {}
    return {name: amount for name, amount in used.items() if name in quota["status"]["hard"] and amount.nano > 0}


def _times(quota: Document, charge: quota_usage.Usage) -> int | None:
    """Return how many times a quota can be charged; None if it limits no resource in ``charge``."""
    hard, used = quota_usage.amounts(quota["status"]["hard"]), quota_usage.amounts(quota["status"]["used"])
    return min((max(0, hard[name].nano - used[name].nano) // amount.nano for name, amount in charge.items()), default=None)


def _raised(quota: Document, charge: quota_usage.Usage, times: int) -> Document:
    """Return a quota charged ``times`` times; a negative number subtracts."""
    used = quota_usage.amounts(quota["status"]["used"])
    more = {name: amount._replace(nano=amount.nano * times, text="") for name, amount in charge.items()}
    shown = {name: str(amount.plus(more[name]) if name in more else amount) for name, amount in used.items()}
    return {**quota, "status": {**quota["status"], "used": shown}}


def without_usage(cluster: ClusterInput, gone: Iterable[Pod]) -> ClusterInput:
    """Return the cluster with the usage of the ``gone`` pods subtracted from the status of its quotas."""
    lost = [pod for pod in gone if not is_new(pod)]
    if not cluster.resource_quotas or not lost:
        return cluster
    facts = _facts_of(with_fields(cluster, pods=tuple(lost)))
    quotas = tuple(_lowered(quota, facts) for quota in cluster.resource_quotas)
    return with_fields(cluster, resource_quotas=quotas)


def _lowered(quota: ResourceQuota, facts: quota_usage.Facts) -> ResourceQuota:
    used = quota_usage.amounts(quota.status.used)
    for document in facts.all(_PODS, quota.namespace):
        if quota_usage.is_in_scope(_POD_USAGE, quota.spec, document):
            charged = _POD_USAGE.usage(document, facts)
            used = {name: amount.minus(charged[name]) if name in charged else amount for name, amount in used.items()}
    return replace(quota, status=replace(quota.status, used={name: str(amount) for name, amount in used.items()}))


def _measured(quota: ResourceQuota, facts: quota_usage.Facts) -> Document:
    """Return a quota as a document whose status has its limits and its usage."""
    hard = quota.spec.hard or quota.status.hard
    limits = quota_usage.amounts(hard)
    counted, _ = quota_usage.counted_usage(quota, limits, facts)
    known = quota_usage.amounts(quota.status.used)
    used = {
        name: max((one[name] for one in (counted, known) if name in one), key=lambda one: one.nano, default=_ZERO)
        for name in hard
    }
    document = _document(quota)
    shown = {name: str(amount) for name, amount in used.items()}
    return {**document, "status": {"hard": dict(hard), "used": shown}}


def limits_for(refused: Sequence[Refused]) -> Iterator[QuotaLimit]:
    """Yield the limits that keep some of these objects from being created, each with what it would have to be for all."""
    needed: dict[tuple[str, str], tuple[QuotaCharge, Exact]] = {}
    for one in refused:
        for charge in one.charges:
            first, total = needed.get((charge.quota, charge.resource), (charge, exact(charge.used)))
            needed[charge.quota, charge.resource] = first, total.plus(exact(charge.asked))
    for (quota, resource), (first, total) in needed.items():
        if total.nano > exact(first.hard).nano:
            yield QuotaLimit(quota, resource, first.used, first.hard, str(total))
    held = refused[0]
    for short in () if held.charges else held.shortages:  # a claim of a stateful set
        total = exact(short.used)
        for _ in refused:
            total = total.plus(exact(short.requested))
        yield QuotaLimit(held.quota, short.resource, short.used, short.hard, str(total))


# -- objects as the admission plugin reads them -------------------------------------------------------------------------


def _facts_of(cluster: ClusterInput) -> quota_usage.Facts:
    """Return lookups of the objects that exist."""
    held: dict[tuple[ServedKind, str], list[Document]] = {}

    def every(kind: ServedKind, namespace: str) -> Iterable[Document]:
        if (kind, namespace) not in held:
            held[kind, namespace] = [_document(obj) for obj in _objects(cluster, kind, namespace)]
        return held[kind, namespace]

    def find(kind: ServedKind, namespace: str, name: str) -> Document | None:
        return next((one for one in every(kind, namespace) if one["metadata"].get("name") == name), None)

    return quota_usage.Facts(0.0, every, find)


def _objects(cluster: ClusterInput, served_kind: ServedKind, namespace: str) -> Iterator[Object]:
    slot = _SLOT_OF.get((served_kind.group, served_kind.kind))
    for obj in getattr(cluster, slot, ()) if slot is not None else ():
        if obj.metadata.namespace == namespace and not (isinstance(obj, Pod) and is_new(obj)):
            yield obj


def _served(obj: Object) -> ServedKind:
    kind = KIND_OF_TYPE[type(obj)]
    return served(kind.resource, kind.group)


def _document(obj: Object) -> Document:
    document: Document = msgspec.to_builtins(obj)
    return document

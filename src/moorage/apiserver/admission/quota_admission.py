"""The admission of resource quotas: nothing is made, or grows, beyond what its namespace may have.

A quota is asked if its status limits something that the object takes and the object is in its scopes. Its status says how much
is used; what is admitted is added to that in the same call of the store that keeps the object, so nobody sees the one without
the other. What goes is taken off later, by the controller of quotas, which counts anew. A quota whose status has no limits
yet, as nobody has counted, limits nothing.

Source  apiserver, pkg/admission/plugin/resourcequota/controller.go, CheckRequest
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moorage.api.decode import decode
from moorage.api.quotas import ResourceQuota
from moorage.apiserver.admission.quota_types import Facts, Usage, add, amounts
from moorage.apiserver.admission.quota_usage import QuotaEvaluator, is_in_scope, meter_of
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import ApiError, forbidden

__all__ = ["charged"]


class _Account(NamedTuple):
    """A quota that an object counts against: as it is, as it is read, and which of its limits are about such objects."""

    document: Document
    quota: ResourceQuota
    limited: Sequence[str]


def charged(
    kind: ServedKind, old: Document | None, new: Document, subresource: str, quotas: Iterable[Document], facts: Facts
) -> list[Document]:  # fmt: skip
    """Return the quotas of a namespace that an object's creation or change is charged to, as they are afterwards.

    ``old`` is None for an object that is new. ``quotas`` are those of its namespace.

    Raises  ApiError 403 where there is not enough left, where the object does not say how much it takes, or where nobody knows
            how much is used
    """
    meter = meter_of(kind)
    if meter is None or not (meter.grows(subresource, old, new) if old is not None else not subresource):
        return []
    accounts = [found for one in quotas if (found := _account(kind, meter, one, new, facts)) is not None]
    if not accounts:
        return []
    usage = meter.usage(new, facts)
    growth = usage if old is None else _growth(meter.usage(old, facts), usage)
    changed = []
    for account in accounts:
        was_counted = old is not None and is_in_scope(meter, account.quota.spec, old)
        after = _charge(kind, new, account, growth if was_counted else usage, subresource)
        if after is not None:
            changed.append(after)
    return changed


def _account(kind: ServedKind, meter: QuotaEvaluator, document: Document, new: Document, facts: Facts) -> _Account | None:
    quota = decode(document, ResourceQuota, "")
    status = quota.status
    limited = meter.matching(status.hard, facts)
    if not limited or not is_in_scope(meter, quota.spec, new):
        return None
    if why := meter.missing(limited, new):
        raise _refused(kind, new, f"failed quota: {quota.name}: {why}")
    if any(name not in status.used for name in limited):
        raise _refused(kind, new, f"status unknown for quota: {quota.name}, resources: {','.join(limited)}")
    return _Account(document, quota, limited)


def _growth(before: Usage, after: Usage) -> Usage:
    """Return what an object takes more than before; what it takes less is given back when usage is counted anew."""
    more = {name: amount.minus(before[name]) if name in before else amount for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount.nano > 0}


def _charge(kind: ServedKind, new: Document, account: _Account, usage: Usage, subresource: str) -> Document | None:
    """Return a quota with what an object takes added to what is used; None where that changes nothing."""
    status = account.quota.status
    asked = {name: amount for name, amount in usage.items() if name in status.hard and amount.nano}
    if not asked:
        return None
    hard, used = amounts(status.hard), amounts(status.used)
    total = dict(used)
    add(total, asked)
    exceeded = sorted(name for name in asked if total[name].nano > hard[name].nano)
    if exceeded and subresource != "status":
        told = (("requested", asked), ("used", used), ("limited", hard))
        shown = [f"{word}: {','.join(f'{name}={of[name]}' for name in exceeded if name in of)}" for word, of in told]
        raise _refused(kind, new, f"exceeded quota: {account.quota.name}, {', '.join(shown)}")
    after = {name: str(amount) for name, amount in sorted(total.items())}
    return {**account.document, "status": {**account.document["status"], "used": after}}


def _refused(kind: ServedKind, document: Document, why: str) -> ApiError:
    return forbidden(kind.resource, kind.group, document["metadata"]["name"], why)

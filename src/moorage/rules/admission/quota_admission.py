"""The ResourceQuota admission plugin: reject objects that exceed a quota of their namespace.

A quota applies if its status limits a resource that the object uses and the object is in its scopes. The usage in the
quota's status is raised in the same store call that stores the object, so both become visible together. Deletions are
subtracted later by the resource quota controller, which recounts. A quota whose status has no limits yet, because the
controller has not counted, limits nothing. The server may be configured to refuse what no quota covers (``LimitedResource``).

Source  apiserver, pkg/admission/plugin/resourcequota/controller.go, CheckRequest
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from moorage.api.core import ResourceQuota, ScopedResourceSelectorRequirement
from moorage.api.decode import decode
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import ApiError, forbidden
from moorage.rules.admission import quota_usage
from moorage.rules.admission.quota_usage import Facts, QuotaEvaluator, Usage, add, amounts, evaluator_for


class QuotaRefusal(NamedTuple):
    """Why a quota refuses an object: ``why`` in kube-apiserver's words, and the amounts of the resources that exceed it."""

    quota: str
    why: str
    requested: Usage = {}
    used: Usage = {}
    hard: Usage = {}


class LimitedResource(NamedTuple):
    """What objects of a resource may use only if a quota covers it: resource names that contain one of ``contains``, and, for
    objects of any resource, being in one of ``scopes``.
    """

    group: str
    resource: str
    contains: tuple[str, ...] = ()
    scopes: tuple[ScopedResourceSelectorRequirement, ...] = ()


class _Applicable(NamedTuple):
    """A quota that applies to an object: its document, its decoded form, and its limited resources that the object uses."""

    document: Document
    quota: ResourceQuota
    limited: Sequence[str]


def charge_quotas(
    kind: ServedKind, old: Document | None, new: Document, subresource: str, quotas: Iterable[Document], facts: Facts,
    limited: Sequence[LimitedResource] = (),
) -> list[Document]:  # fmt: skip
    """Return the quotas of a namespace that the creation or update of an object charges, with their new usage.

    ``old`` is None on create. ``quotas`` are the quotas of the object's namespace, ``limited`` what needs one.
    Raises  ApiError 403 if a quota would be exceeded, if the object does not specify a required amount, if the usage of
            a quota is unknown, or if no quota covers what needs one; 500 if none covers a scope that needs one
    """
    found = charged_or_refused(kind, old, new, subresource, quotas, facts, limited)
    if isinstance(found, QuotaRefusal):
        if found.why.startswith(_SCOPES):
            raise ApiError(500, "", found.why)  # kube-apiserver does not say that it is forbidden
        raise forbidden(kind.resource, kind.group, new["metadata"]["name"], found.why)
    return found


_SCOPES: Final = "insufficient quota to match these scopes: "


def charged_or_refused(
    kind: ServedKind, old: Document | None, new: Document, subresource: str, quotas: Iterable[Document], facts: Facts,
    limited: Sequence[LimitedResource] = (),
) -> list[Document] | QuotaRefusal:  # fmt: skip
    """Return the charged quotas, or the first refusal as a value instead of an error."""
    evaluator = evaluator_for(kind)
    if evaluator is None or not (evaluator.grows(subresource, old, new) if old is not None else not subresource):
        return []
    quotas_that_apply: list[_Applicable] = []
    quotas = [*quotas]
    for one in quotas:
        applicable = _if_applicable(evaluator, one, new, facts)
        if isinstance(applicable, QuotaRefusal):
            return applicable
        quotas_that_apply += [applicable] if applicable is not None else []
    if not quotas_that_apply and not limited:
        return []
    usage = evaluator.usage(new, facts)
    growth = usage if old is None else _growth(evaluator.usage(old, facts), usage)
    if why := _uncovered(kind, evaluator, new, usage, growth, quotas, quotas_that_apply, limited):
        return QuotaRefusal("", why)
    changed = []
    for applicable in quotas_that_apply:
        was_counted = old is not None and quota_usage.is_in_scope(evaluator, applicable.quota.spec, old)
        after = _charge(applicable, growth if was_counted else usage, subresource)
        if isinstance(after, QuotaRefusal):
            return after
        changed += [after] if after is not None else []
    return changed


def _uncovered(
    kind: ServedKind, evaluator: QuotaEvaluator, new: Document, usage: Usage, growth: Usage, quotas: Iterable[Document],
    applied: Iterable[_Applicable], limited: Sequence[LimitedResource],
) -> str:  # fmt: skip
    """Return why an object uses what needs a quota and has none; "" if it does not."""
    if not limited or not any(amount.nano for amount in growth.values()):
        return ""
    covered = {name for one in applied for name in one.limited}
    mine = [one for one in limited if (one.group, one.resource) == (kind.group, kind.resource)]
    needed = {
        name for name, amount in usage.items() for one in mine if amount.nano > 0 and any(part in name for part in one.contains)
    }
    if left := sorted(needed - covered):
        return f"insufficient quota to consume: {','.join(left)}"
    scopes = [scope for one in limited for scope in one.scopes if evaluator.is_scoped(scope, new)]
    if not scopes:
        return ""
    named = {
        scope.scope_name for one in quotas for scope in decode(one, ResourceQuota, "").spec.requirements
        if evaluator.is_scoped(scope, new)
    }  # fmt: skip
    lacking = [f"{{{one.scope_name} {one.operator} [{' '.join(one.values)}]}}" for one in scopes if one.scope_name not in named]
    return f"{_SCOPES}[{' '.join(lacking)}]" if lacking else ""


def _if_applicable(
    evaluator: QuotaEvaluator, document: Document, new: Document, facts: Facts
) -> _Applicable | QuotaRefusal | None:
    quota = decode(document, ResourceQuota, "")
    status = quota.status
    limited = evaluator.matching(status.hard, facts)
    if not limited or not quota_usage.is_in_scope(evaluator, quota.spec, new):
        return None
    if why := evaluator.missing(limited, new):
        return QuotaRefusal(quota.name, f"failed quota: {quota.name}: {why}")
    if any(name not in status.used for name in limited):
        return QuotaRefusal(quota.name, f"status unknown for quota: {quota.name}, resources: {','.join(limited)}")
    return _Applicable(document, quota, limited)


def _growth(before: Usage, after: Usage) -> Usage:
    """Return how much more an object uses than before. Decreases are returned when the controller recounts."""
    more = {name: amount.minus(before[name]) if name in before else amount for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount.nano > 0}


def _charge(applicable: _Applicable, usage: Usage, subresource: str) -> Document | QuotaRefusal | None:
    """Return a quota with an object's usage added, or None if that changes nothing."""
    status = applicable.quota.status
    requested = {name: amount for name, amount in usage.items() if name in status.hard and amount.nano}
    if not requested:
        return None
    hard, used = amounts(status.hard), amounts(status.used)
    total = dict(used)
    add(total, requested)
    exceeded = sorted(name for name in requested if total[name].nano > hard[name].nano)
    if exceeded and subresource != "status":
        words = {"requested": requested, "used": used, "limited": hard}
        over = {word: {name: of[name] for name in exceeded if name in of} for word, of in words.items()}
        shown = [f"{word}: {','.join(f'{name}={amount}' for name, amount in of.items())}" for word, of in over.items()]
        name = applicable.quota.name
        return QuotaRefusal(name, f"exceeded quota: {name}, {', '.join(shown)}", *over.values())
    after = {name: str(amount) for name, amount in sorted(total.items())}
    return {**applicable.document, "status": {**applicable.document["status"], "used": after}}

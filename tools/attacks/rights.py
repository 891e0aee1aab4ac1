"""The rights of ordinary users, as the server reports them, and what the users did beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from moorage.api.documents.served_kinds import KINDS, ServedKind
from moorage.cluster.apiserver.access.rbac import Attributes
from moorage.rules.store.watches import StoreChange
from tools.attacks.ground import PLANTED, Ground
from tools.attacks.making import Attack
from tools.attacks.objects import ATTACKED
from tools.attacks.routes import CLOSED, OPEN
from tools.attacks.wire import AttackConnection, AttackResponse, Malformed

__all__ = ["Rights", "faults_of_rights", "held_rights"]

#: Pairs of a user and an allowed request.
Rights: TypeAlias = set[tuple[str, Attributes]]

_VERBS: Final = {"DELETE": "delete", "GET": "get", "HEAD": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}
_OF_MANY: Final = {"delete": "deletecollection", "get": "list"}
_CHANGING: Final = ("create", "update", "patch", "delete", "deletecollection")
_ALL: Final = (*_CHANGING, "get", "list", "watch", "bind", "escalate")
#: Kinds that the server writes as a side effect of allowed requests: events of the other group, budgets, quotas.
_ALONG: Final = frozenset(["Event", "PodDisruptionBudget", "ResourceQuota"])


async def faults_of_rights(
    ground: Ground,
    line: AttackConnection,
    attack: Attack,
    answer: AttackResponse | None,
    written: list[tuple[ServedKind, StoreChange]],
    rights: Rights,
) -> list[str]:
    """Return what an ordinary user read or wrote without the right to. ``rights`` are those at the start of the run."""
    if attack.who == "admin":
        return []
    faults = [fault for kind, change in written for fault in _overwritten(rights, attack, kind, change)]
    if answer is None:
        return faults
    if PLANTED.encode() in answer.body:
        faults.append(f"{attack.who} can read an object of others")
    about = attack.what.route.about
    if answer.code < 300 and about is not None and attack.is_plain and not _decides_rights(about.group):
        asked = _asked(attack, answer)
        if not await _may(ground, line, attack.who, asked):
            faults.append(f"SelfSubjectAccessReview denies {attack.who} a request that returned {answer.code}: {asked}")
    return faults


def _decides_rights(group: str) -> bool:
    return group == "rbac.authorization.k8s.io"


def _asked(attack: Attack, answer: AttackResponse) -> dict[str, str]:
    route, verb = attack.what.route, _VERBS[attack.method]
    assert route.about is not None
    if not route.name:
        verb = "watch" if answer.streams else _OF_MANY.get(verb, verb)
    return {
        "verb": verb, "group": route.about.group, "resource": route.about.resource, "namespace": route.namespace,
        "name": route.name, "subresource": route.subresource,
    }  # fmt: skip


async def _may(ground: Ground, line: AttackConnection, who: str, asked: dict[str, str]) -> bool:
    body = msgspec.json.encode({"spec": {"resourceAttributes": asked}})
    lines = [
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1", "Host: localhost",
        f"Authorization: Bearer {ground.tokens[who]}", "Content-Type: application/json", f"Content-Length: {len(body)}", "", "",
    ]  # fmt: skip
    answer = await line.ask("\r\n".join(lines).encode() + body)
    if answer is not None and answer.code == 403:
        return True  # an earlier attack revoked the right to request reviews
    if answer is None or answer.code != 201:
        raise Malformed(f"a review returns {answer}")
    return bool(msgspec.json.decode(answer.body)["status"]["allowed"])


def _overwritten(rights: Rights, attack: Attack, kind: ServedKind, change: StoreChange) -> Iterator[str]:
    if kind.kind in _ALONG or (kind.native == "Endpoints" and attack.method == "DELETE"):
        return  # the endpoints of a service are deleted with it
    record = change.after
    asked = (
        Attributes(verb, kind.group, kind.resource, part, "", record.namespace)
        for verb in _CHANGING
        for part in ("", *kind.subresources)
    )
    if not any((attack.who, one) in rights for one in asked):
        yield f"{attack.who} wrote {kind.qualified} {record.key} without the right to"


def held_rights(ground: Ground) -> Rights:
    """Return the rights of every ordinary user, among all possible requests."""
    asked = [
        Attributes(verb, kind.group, kind.resource, part, "", namespace)
        for kind in (*KINDS, ATTACKED)
        for part in ("", *kind.subresources)
        for namespace in ("", OPEN, CLOSED, "kube-system")
        for verb in _ALL
    ] + [Attributes(verb, path=path) for verb in ("get", "post") for path in ("/metrics", "/api", "/x")]
    return {(who, one) for who, user in ground.users.items() for one in asked if ground.authorizer.judge(user, one).allowed}

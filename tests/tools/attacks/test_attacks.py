"""Attacks over every route: the server keeps its promises, and one that is broken on purpose is found out."""

import asyncio
import contextlib
import random
import re
from unittest import mock

import pytest

from moorage.api.documents.served_kinds import ALL_KINDS, KINDS, REVIEWS, served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http import requests
from moorage.cluster.apiserver.schema import openapi
from moorage.rules.admission import strategy
from moorage.rules.store import store as storing
from moorage.rules.store.store import DeletionResult, Store
from tools.attacks.attack_run import run
from tools.attacks.ground import a_ground
from tools.attacks.making import Attack, make
from tools.attacks.objects import ATTACKED, valid_object
from tools.attacks.routes import OPEN, SEEDED, combinations, routes
from tools.attacks.settled import faults_of_store
from tools.attacks.spoiling import HOSTILE
from tools.attacks.wire import AttackConnection


@pytest.mark.slow
def test_invariants_hold():
    result = run(20_000, attacks=500)
    assert result.broken == []
    assert result.codes[200] + result.codes[201] > 35, "hardly anything got through"


def test_the_same_seed_makes_the_same_attacks():
    drawn = [[str(make(random.Random(f"7/{i}"), i, what)) for i, what in enumerate(combinations()[:200])] for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_attacks_depend_on_their_own_number_only():
    """Mutations change the hostile values that they insert; the next attack gets them unchanged."""
    before = repr(HOSTILE)
    for number, what in enumerate(combinations()):
        make(random.Random(f"7/{number}"), number, what)
    assert repr(HOSTILE) == before


DRY = {  # method, body, whether the parameter makes it a dry run
    "a deletion": ("DELETE", b"", True),
    "a deletion with options in its body": ("DELETE", b"{}", False),
    "a change": ("PUT", b"{}", True),
}


@pytest.mark.parametrize(("method", "body", "is_dry"), DRY.values(), ids=DRY)
def test_options_in_the_body_of_a_deletion_replace_the_parameters(method, body, is_dry):
    attack = Attack(0, "admin", combinations()[0], method, "/", (), body, "", True, (("dryRun", "All"),))
    assert attack.is_dry == is_dry


def test_every_documented_path_is_attacked():
    attacked = {
        route.path.replace(f"/{OPEN}/", "/{namespace}/").replace(f"/{route.name or SEEDED}", "/{name}") for route in routes()
    }
    documented = {
        path
        for place in openapi.index(ALL_KINDS)["paths"]
        for path in openapi.document_of(place, ALL_KINDS)["paths"]
        if "/namespaces/{name}" not in path
    }
    assert documented - {path.rstrip("/") for path in attacked} - attacked == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified)
def test_every_kind_has_a_valid_object(kind):
    if "create" in kind.verbs:
        assert valid_object(kind, "open", "x")["kind"] == kind.kind


def breaks(*_, **__):
    raise KeyError("inside")


def writes_first(write):
    def changed(store, *arguments):
        store.version += 1
        return write(store, *arguments)

    return changed


def unchecked(*arguments):
    with contextlib.suppress(ApiError):
        strategy.prepare_create(*arguments)


def stays(_store, _kind, record, _document):
    return DeletionResult(record, True)


#: What is broken, and what the attacks say of it.
MUTANTS = {
    "all clients may do all": (
        mock.patch.object(Authorizer, "check", return_value=None), "SelfSubjectAccessReview denies|cannot be read: 404",
    ),
    "a bug in the handler": (mock.patch.object(requests, "_page", breaks), "logged: moorage.cluster.apiserver.http"),
    "new objects are not checked": (mock.patch.object(storing, "prepare_create", unchecked), "is not valid by"),
    "refused requests write": (mock.patch.dict(requests._WRITERS, PUT=writes_first(requests._WRITERS["PUT"])), "was rejected"),
    "nothing is deleted": (mock.patch.object(Store, "_remove", stays), "still there"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "said"), MUTANTS.values(), ids=MUTANTS)
def test_a_broken_server_is_detected(broken, said):
    with broken:
        found = run(20_002, attacks=600).broken
    assert any(re.search(said, fault) for fault in found), found[:3]


@pytest.mark.slow
def test_a_custom_kind_may_end_while_its_objects_are_deleted():
    async def check():
        async with a_ground(1) as ground:
            kind = ground.store.kinds.find(ATTACKED.resource, ATTACKED.group, ATTACKED.version)
            document = valid_object(kind, OPEN, "held")
            document["metadata"]["finalizers"] = ["foregroundDeletion"]  # which a deletion without dependents removes
            ground.store.create(kind, OPEN, document)
            ground.store.delete(served("customresourcedefinitions", "apiextensions.k8s.io"), "", "things.attacked.example.com")
            line = AttackConnection(ground.port)
            assert await faults_of_store(ground, line) == []
            await line.close()
            assert ground.store.kinds.find(ATTACKED.resource, ATTACKED.group, ATTACKED.version) is None

    asyncio.run(check())


def test_reviews_are_attacked_too():
    assert {review.resource for review in REVIEWS} <= {route.about.resource for route in routes() if route.about is not None}

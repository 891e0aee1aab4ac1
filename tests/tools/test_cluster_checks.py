"""One suite of checks on three kinds of cluster; and the suite itself, on clusters that are wrong on purpose."""

import asyncio
import os
import random
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.rules.store.store import Store
from tools.cluster_checks.checks import CHECKS, check_cluster
from tools.cluster_checks.wires import HttpWire, StoreWire, WireAnswer


def a_store():
    gates = FeatureGates.parse("GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true", "1.36")
    return Store(time.time, random.Random(5), b"k", gates=gates)


@pytest.mark.parametrize("streams", [True, False])
def test_the_store_in_memory(streams):
    store = a_store()
    store.lists_by_watch = streams
    asyncio.run(check_cluster(StoreWire(store)))


def test_a_store_without_pod_groups():
    asyncio.run(check_cluster(StoreWire(Store(time.time, random.Random(5), b"k"))))


@pytest.mark.slow
def test_the_embedded_server_over_http():
    async def main():
        guard = Authenticator({"t": User("admin", ("system:masters",))})
        async with (
            serving(a_store(), guard) as port,
            HttpWire(Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("t")))) as wire,
        ):
            await check_cluster(wire)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.skipif("MOORAGE_TEST_KUBECONFIG" not in os.environ, reason="MOORAGE_TEST_KUBECONFIG names no cluster")
def test_the_cluster_of_the_kubeconfig():
    async def main():
        around = ClientEnvironment(os.environ, time.monotonic, lambda: datetime.now(UTC), warn=print)
        held = read_kubeconfig([Path(os.environ["MOORAGE_TEST_KUBECONFIG"])], must_exist=True, warn=print)
        async with HttpWire(held.endpoint(around)) as wire:
            await check_cluster(wire, f"moorage-check-{os.getpid()}")

    asyncio.run(main())


def test_a_server_whose_admission_learns_of_a_class_late():
    """kube-apiserver's does: its cache of classes follows a watch."""

    class Late(StoreWire):
        refusals = 0

        async def ask(self, method, path, body=None, **how):
            name = (body or {}).get("spec", {}).get("priorityClassName", "") if isinstance(body, dict) else ""
            if name.endswith("-high") and self.refusals < 3:
                self.refusals += 1
                return WireAnswer(
                    403, {"message": f'pods "important" is forbidden: no PriorityClass with name {name} was found'}
                )
            return await super().ask(method, path, body, **how)

    late = Late(a_store())
    asyncio.run(check_cluster(late))
    assert late.refusals == 3


class Twisted(StoreWire):
    """A store whose answers are changed on their way."""

    def __init__(self, store, twist):
        super().__init__(store)
        self.twist = twist

    async def ask(self, method, path, body=None, **how):
        return self.twist(method, path, await super().ask(method, path, body, **how))


def always_bound(method, path, answer):
    return replace(answer, code=201, body={}) if path.endswith("/binding") else answer


def never_conflicts(method, path, answer):
    return replace(answer, code=200) if method == "PUT" and answer.code == 409 else answer


def forgets_pages(method, path, answer):
    metadata = {name: value for name, value in answer.body.get("metadata", {}).items() if name != "continue"}
    return replace(answer, body={**answer.body, "metadata": metadata}) if "metadata" in answer.body else answer


def evicts_without_budgets(method, path, answer):
    return replace(answer, code=201, body={}) if path.endswith("/eviction") else answer


def lets_groups_grow(method, path, answer):
    return replace(answer, code=200, body={}) if method == "PATCH" and path.endswith("/podgroups/g") else answer


WRONG = {
    "groups grow": (lets_groups_grow, "pod groups are immutable: another size"),
    "every bind is accepted": (always_bound, "pods are bound once: binding it again"),
    "stale writes win": (never_conflicts, "versions grow and stale writes fail: a stale write"),
    "pages have no end": (forgets_pages, "lists are paginated: sizes of pages"),
    "budgets are not asked": (evicts_without_budgets, "evictions respect budgets: a budget without room"),
}


@pytest.mark.parametrize(("twist", "told"), WRONG.values(), ids=WRONG)
def test_a_faulty_cluster_fails_the_checks(twist, told):
    with pytest.raises(AssertionError) as raised:
        asyncio.run(check_cluster(Twisted(a_store(), twist)))
    assert told in str(raised.value)


def test_every_check_is_named_after_its_invariant():
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS) >= 15

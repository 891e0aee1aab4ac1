"""What the API server answered to our writes counts at once, against older news and until it turns out to be lost.

The last test lets claims of devices live through any order of writes, answers, news and losses: in the end the scheduler takes
for allocated what the API server has as allocated, and unless writes were lost no device is ever given to two claims.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from moorage.core.engine.facts import Done, Gone, Seen, WriteLost, Wrote
from moorage.errors import ClusterError, MoorageError
from moorage.framework.effects import Amend
from moorage.plugins.devices.claim_shapes import DeviceState
from tests.core.engine.driving import Driven, node, pod

NAMES = ("c1", "c2", "c3")
DEVICES = ("d1", "d2")


def claim(name, version, uid="", **metadata):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    named = {"name": name, "namespace": "default", "uid": uid or name, "resourceVersion": str(version), **metadata}
    return msgspec.convert({"metadata": named, "spec": {"devices": {"requests": [request]}}}, ResourceClaim)


def labelled(name, version, **labels):
    return claim(name, version, labels=labels)


def known(driven, name="c"):
    return driven.engine.cluster.objects(ResourceClaim).get(f"default/{name}")


# -- one answer ------------------------------------------------------------------------------------------------------------


def told(driven, *facts):
    for fact in facts:
        driven.engine.observe(fact, driven.now)


CASES = {  # what is known before the answer at version 5, what a watch tells after it, and the version that counts
    "the answer is news": ([Seen(claim("c", 3))], [], "5"),
    "news that is older is passed over": ([Seen(claim("c", 3))], [Seen(claim("c", 4))], "5"),
    "the watch confirms": ([Seen(claim("c", 3))], [Seen(claim("c", 5))], "5"),
    "the watch goes on": ([Seen(claim("c", 3))], [Seen(claim("c", 9)), Seen(claim("c", 8))], "8"),
    "the watch was ahead": ([Seen(claim("c", 6))], [], "6"),
    "it is gone": ([Seen(claim("c", 3))], [Gone(claim("c", 3))], None),
    "it was gone before": ([Seen(claim("c", 3)), Gone(claim("c", 3))], [], None),
    "the API server lost it": ([Seen(claim("c", 3))], [WriteLost(labelled("c", 5), claim("c", 3))], "3"),
    "the API server lost the object": ([Seen(claim("c", 3))], [WriteLost(labelled("c", 5), None)], None),
}


@pytest.mark.parametrize(("before", "after", "version"), CASES.values(), ids=CASES)
def test_a_write_reply_counts_until_a_newer_version_arrives(before, after, version):
    driven, calls = Driven(), []
    answer = claim("c", 5)
    told(driven, *before, Wrote(answer, lambda: calls.append(known(driven))))
    told(driven, *(WriteLost(answer, fact.found) if isinstance(fact, WriteLost) else fact for fact in after))
    assert len(calls) == 1
    assert getattr(getattr(known(driven), "metadata", None), "resource_version", None) == version
    assert driven.engine.is_unconfirmed(answer) is (version == "5" and not any(f == Seen(answer) for f in after))


def test_a_reply_that_the_watch_overtook_is_not_lost():
    driven, answer = Driven(), claim("c", 5)
    told(driven, Seen(claim("c", 3)), Wrote(answer, lambda: None), Seen(claim("c", 7)), WriteLost(answer, claim("c", 3)))
    assert known(driven).metadata.resource_version == "7"


def test_a_created_object_is_used_before_its_watch_event():
    driven = Driven()
    told(driven, Wrote(claim("c", 5), lambda: None, made=True))
    assert known(driven) is not None


def test_non_numeric_resource_versions_are_not_kept():
    driven = Driven()
    told(driven, Seen(claim("c", "a")), Wrote(claim("c", "b"), lambda: None), Seen(claim("c", "c")))
    assert known(driven).metadata.resource_version == "c"
    assert not len(driven.engine.event_handlers.answers)


# -- devices through any history -------------------------------------------------------------------------------------------


class Server:
    """Claims as an API server has them, what a watch has still to tell of them, and requests on their way."""

    def __init__(self, *, loses):
        self.loses = loses
        self.version = 10
        self.claims: dict[str, ResourceClaim] = {}
        self.news: list = []
        self.heard: dict[str, ResourceClaim] = {}
        self.past: list = []
        self.driven = Driven()
        self.driven.see(node("n", "100"), msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass), a_slice())
        self.works: list = []
        self.answers: list = []
        self.serial = 0

    # -- the server ----------------------------------------------------------------------------------------------------

    def put(self, obj):
        self.version += 1
        stored = replace(obj, metadata=replace(obj.metadata, resource_version=str(self.version)))
        self.claims[obj.key] = stored
        self.news.append(Seen(stored))
        self.past.append(dict(self.claims))
        return stored

    def make(self, name):
        if f"default/{name}" not in self.claims:
            self.serial += 1
            self.put(claim(name, 0, uid=f"{name}-{self.serial}"))

    def delete(self, name):
        held = self.claims.get(f"default/{name}")
        if held is not None and held.status.allocation is None:
            self.version += 1
            del self.claims[f"default/{name}"]
            self.news.append(Gone(held))
            self.past.append(dict(self.claims))

    def give_back(self, name):
        """Take back the devices; our finalizer stays, as it may."""
        held = self.claims.get(f"default/{name}")
        if held is not None and held.status.allocation is not None:
            self.put(replace(held, status=ResourceClaimStatus()))

    def touch(self, name):
        held = self.claims.get(f"default/{name}")
        if held is not None:
            self.put(replace(held, metadata=replace(held.metadata, labels={"beat": str(self.version)})))

    def lose(self, name):
        """Go back to how things were some writes ago, with versions that leap ahead."""
        if self.loses and len(self.past) > 2:
            self.claims = dict(self.past[-3])
            self.version += 100
            self.past = [dict(self.claims)]
            self.list(name)

    # -- events ------------------------------------------------------------------------------------------------------

    def tell(self, name):
        if self.news:
            fact = self.news.pop(0)
            if isinstance(fact, Seen):
                self.heard[fact.obj.key] = fact.obj
            else:
                self.heard.pop(fact.obj.key, None)
            told(self.driven, fact)

    def list(self, name):
        """Report what differs from what was reported, as a new list does."""
        self.news.clear()
        for key in sorted({*self.heard, *self.claims}):
            old, new = self.heard.get(key), self.claims.get(key)
            if old is new:
                continue
            if old is not None and (new is None or is_another(old, new)):
                told(self.driven, Gone(old))
            if new is not None:
                told(self.driven, Seen(new))
        self.heard = dict(self.claims)

    # -- the scheduler -------------------------------------------------------------------------------------------------

    def ask(self, name):
        """Let a pod come that uses the claim, and be tried."""
        self.serial += 1
        self.driven.see(pod(f"p{self.serial}", "100m", resourceClaims=[{"name": "r", "resourceClaimName": name}]))
        self.driven.steps(400.0)
        self.take_work()

    def take_work(self):
        self.works += [work for work in self.driven.work() if work.phase.is_answered]

    def write(self, name, reply="good"):
        """Carry out the oldest work; its answer is pending."""
        if not self.works:
            return
        work = self.works.pop(0)
        error = None
        for effect in work.effects:
            if isinstance(effect, Amend):
                try:
                    obj = self.amend(effect)
                except MoorageError as failed:
                    obj, error = self.there(effect.obj), str(failed)
                if reply == "lost":
                    error = "connection reset"
                if effect.settled is not None:
                    self.answers.append((effect, obj))
        self.answers.append((work, error))

    def write_rejected(self, name):
        self.write(name, "lost")

    def refuse(self, name):
        if self.works:
            self.answers.append((self.works.pop(0), "not begun"))

    def amend(self, effect):
        held = self.there(effect.obj)
        if held is None:
            raise ClusterError("gone", 404)
        changed = effect.change(held)
        if changed == held:
            return held
        if changed.metadata.finalizers != held.metadata.finalizers:
            held = self.put(replace(held, metadata=changed.metadata))
        stored = self.put(replace(changed, metadata=held.metadata))
        if changed.status.allocation is not None and not self.loses:
            self.check_given_once()
        return stored

    def there(self, obj):
        held = self.claims.get(obj.key)
        return held if held is not None and held.metadata.uid == obj.metadata.uid else None

    def answer(self, name):
        """Let the oldest answers arrive, up to the end of a piece of work. In between the object may be read again."""
        while self.answers:
            what, came = self.answers.pop(0)
            if isinstance(what, Amend):
                told(self.driven, Wrote(came, what.settled))
                continue
            told(self.driven, Done(what.ticket, came))
            break
        self.take_work()

    # -- what happens in one go ------------------------------------------------------------------------------------------

    def allocate(self, name):
        """Let a pod get the claim's devices and its node; no watch tells of it."""
        self.ask(name)
        self.finish(name)

    def finish(self, name):
        for _ in range(50):
            if not (self.works or self.answers):
                break
            self.write(name)
            self.answer(name)

    def pass_through(self, name):
        """Let devices come and go before any watch tells of it."""
        self.allocate(name)
        self.give_back(name)

    # -- what holds ----------------------------------------------------------------------------------------------------

    def check_given_once(self):
        given = devices_of(self.claims)
        assert len(given) == len(set(given)), "a device was given to two claims"

    def end(self):
        """Deliver everything that is pending; read back answers that were lost."""
        self.finish("")
        self.list("")
        for answer in list(self.driven.engine.event_handlers.answers._open.values()):
            found = self.there(answer)
            told(self.driven, WriteLost(answer, found))


def a_slice():
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", "devices": [{"name": name} for name in DEVICES]}
    return msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)


def is_another(old, new):
    was, now = old.metadata, new.metadata
    return was.uid != now.uid or int(now.resource_version) < int(was.resource_version)


def devices_of(claims):
    allocations = [one.status.allocation for one in claims.values() if one.status.allocation is not None]
    return [result.device for allocation in allocations for result in allocation.devices.results]


ONCE = ["make", "ask", "write", "write_rejected", "refuse", "answer", "list", "give_back", "touch", "delete", "finish"]
ACTS = [*ONCE, *["allocate", "tell"] * 3, *["pass_through", "lose"] * 2]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@example(
    acts=[("allocate", "c1"), ("tell", ""), ("allocate", "c2")], loses=False
)  # the protection was reported, the devices not yet
@example(acts=[("pass_through", "c1"), ("tell", ""), ("tell", ""), ("tell", "")], loses=False)  # no pod asks in between
@example(acts=[("allocate", "c1"), ("lose", "")], loses=True)
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(NAMES)), min_size=2, max_size=30), loses=st.booleans())
def test_device_allocations_converge_to_the_api_server(acts, loses):
    server = Server(loses=loses)
    for name in NAMES[:2]:
        server.make(name)
    server.list("")
    for act, name in acts:
        getattr(server, act)(name)
    server.end()
    device_state = server.driven.engine.snapshot.index(DeviceState)
    device_state.follow()
    assert server.driven.engine.cluster.objects(ResourceClaim) == server.claims
    assert sorted(device for _, _, device in device_state.ledger.used) == sorted(set(devices_of(server.claims)))
    assert not device_state.ledger.pending_claims

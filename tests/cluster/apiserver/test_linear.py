"""The cost of a request is linear: twice as much of any field takes twice the work, however it is sent."""

import os
import time

import msgspec
import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.gc_pause import collector_paused
from tests.cluster.apiserver.growing import STRATEGIC, Asked, Bench, Place, all_places, put, requests, sound, texts
from tests.executed import executed

PODS = served("pods")
#: From the second size to the third as many items are added as twice from the first to the second. So where each item is so
#: many steps, twice as much work is added; where each is compared with each, four times as much.
MOST = 2.2
SIZES = (10, 20, 40)
#: Fields with a limit between the sizes are larger by this factor: each size is beyond it, and each answer has the same faults.
#: (Lines that differ are found in another way where there are 200 or more.)
BEYOND = {"searches": 4, "onPodConditions": 3, "topologySpreadConstraints": 2, "volumes": 2}


def different(places):
    """Return the places without duplicates of one struct field under several paths or kinds; of pods, those that
    can change.
    """
    first = {}
    for place in sorted(places, key=lambda place: place.kind.kind != "Deployment"):
        first.setdefault((place.owner, place.path[-1]), place)
    return list(first.values())


def chosen():
    """Return each field once, and those of pods also on their own."""
    own = [place for place in all_places() if place.kind.kind == "Pod" and len(place.path) == 2]
    return list({str(place): place for place in (*different(all_places()), *own)}.values())


PLACES = all_places() if os.environ.get("MOORAGE_LONG_TESTS") else chosen()
KINDS = sorted({place.kind.qualified for place in PLACES})


def work(bench, place):
    """Return the work of each request by name: one number for each size."""
    done = {}
    sizes = [size * BEYOND.get(place.path[-1], 1) for size in SIZES]
    for size in sizes:
        for name, asked in requests(bench, place, size).items():
            if size == sizes[0]:
                bench.ask(place, asked)  # what is worked out once and kept is no part of it
            done.setdefault(name, []).append(executed(lambda asked=asked: bench.ask(place, asked)))
    return done


def is_beyond(least, middle, most):
    """Return True if the step to the largest size is more than linear, by more than a call per item."""
    return most - middle > MOST * (middle - least) and most - 2 * middle + least > SIZES[-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_work_is_linear_in_the_request(kind):
    bench = Bench()
    places = [place for place in PLACES if place.kind.qualified == kind]
    done = {f"{place} by {name}": amounts for place in places for name, amounts in work(bench, place).items()}
    assert {how: amounts for how, amounts in done.items() if is_beyond(*amounts)} == {}


#: Texts of which each piece could make a reader look at all before it again.
HOSTILE = (
    "a" * 50_000 + "_",
    "a." * 25_000 + "_",
    "a-" * 25_000,
    "1" * 50_000,
    "1." * 25_000,
    " " * 50_000 + "x",
    "*/1," * 12_500,
)


@pytest.mark.slow
def test_long_strings_are_scanned_once():
    """A quadratic scan would take seconds, a linear one takes milliseconds."""
    bench = Bench()
    places = different([place for kind in {place.kind for place in PLACES} for place in texts(kind)])
    assert len(places) > 300
    for i, place in enumerate(places):
        document = sound(place.kind, "x")
        put(place, document, HOSTILE[i % len(HOSTILE)])
        asked = Asked("POST", "", msgspec.json.encode(document))
        assert any(cpu_of(bench, place, asked) < 1 for _ in range(3)), place


def cpu_of(bench, place, asked):
    """Return the CPU time of a request."""
    with collector_paused():
        began = time.thread_time()
        bench.ask(place, asked)
        return time.thread_time() - began


# -- what no count of calls shows: comparing within one call ---------------------------------------------------------------


def pod(name="x", **spec):
    metadata = {"name": name, "namespace": "default", "finalizers": spec.pop("finalizers", [])}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def tolerations(count):
    return [{"key": f"k{i}", "operator": "Exists"} for i in range(count)]


def constraints(count, **more):
    return [{"topologyKey": f"k{i}", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **more} for i in range(count)]


def finalizers(count, first=0):
    return [f"example.com/f{i}" for i in range(first, first + count)]


def ordered(count):
    names = [{"name": f"c{i}"} for i in range(count)]
    return {"spec": {"$setElementOrder/containers": names[::-1], "containers": [{**one, "image": "i"} for one in names[::-1]]}}


def valued(count, value):
    return [{"name": "c", "image": "i", "env": [{"name": f"e{i}", "value": value} for i in range(count)]}]


def keyed(count):
    names = [f"k{i}" for i in range(count)]
    selector = {"matchExpressions": [{"key": name, "operator": "Exists"} for name in names]}
    return [{"topologyKey": "t", "matchLabelKeys": names, "mismatchLabelKeys": names, "labelSelector": selector}]


def affine(count):
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": keyed(count)}}


CONTAINERS = [{"name": f"c{i}", "image": "i"} for i in range(20000)]
CLAIMED = {"image": "i", "resources": {"claims": [{"name": "r0"}]}}

# how many are few; the object that is there, if any; how another is sent; what is sent, by how many of them
PAIRS = {
    "tolerations in another order": (
        300, lambda n: pod(tolerations=tolerations(n)), "PUT", lambda n: pod(tolerations=tolerations(n)[::-1]),
    ),
    "finalizers that are taken off": (
        600, lambda n: pod(finalizers=finalizers(n)), STRATEGIC,
        lambda n: {"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers(n)}},
    ),
    "finalizers that are added": (
        300, lambda n: pod(finalizers=finalizers(n)), STRATEGIC, lambda n: {"metadata": {"finalizers": finalizers(n, n)}},
    ),
    "an order": (300, lambda n: pod(containers=CONTAINERS[:n]), STRATEGIC, ordered),
    "keys to keep": (
        1200, lambda n: pod(), STRATEGIC,
        lambda n: {"$retainKeys": [f"k{i}" for i in range(n)], **{f"k{i}": 1 for i in range(n)}},
    ),
    "containers that are taken off": (
        600, lambda n: pod(containers=CONTAINERS[:n]), STRATEGIC,
        lambda n: {"spec": {"containers": [{"name": one["name"], "$patch": "delete"} for one in CONTAINERS[:n]]}},
    ),
    "values that change": (300, lambda n: pod(containers=valued(n, "a")), "PUT", lambda n: pod(containers=valued(n, "b"))),
    "constraints": (300, None, "POST", lambda n: pod(topologySpreadConstraints=constraints(n))),
    "keys to match and not to match": (600, None, "POST", lambda n: pod(affinity=affine(n))),
    "claims that containers share": (
        600, None, "POST",
        lambda n: pod(
            resourceClaims=[{"name": f"r{i}", "resourceClaimName": "c"} for i in range(n)],
            containers=[{"name": f"c{i}", **CLAIMED} for i in range(n)],
        ),
    ),
    "resources of sidecars": (
        300, None, "POST",
        lambda n: pod(
            resources={"limits": {"memory": "1Gi"}},
            initContainers=[
                {"name": f"i{i}", "image": "i", "restartPolicy": "Always", "resources": {"limits": {f"x.com/r{i}": 1}}}
                for i in range(n)
            ],
        ),
    ),
    "owners of which all are controllers": (
        300, None, "POST",
        lambda n: {**pod(), "metadata": {"name": "x", "ownerReferences": [
            {"apiVersion": "v1", "kind": "K", "name": f"o{i}", "uid": f"u{i}", "controller": True} for i in range(n)]}},
    ),
    "managers that are put together": (
        300, lambda n: pod(), "PUT",
        lambda n: {**pod(), "metadata": {"name": "x", "labels": {"a": "b"}, "managedFields": [
            {"manager": f"m{i}", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {f"f:x{i}": {}}}}, "time": "2026-01-01T00:00:00Z"} for i in range(n)]}},
    ),
    "fields that stand twice below a long key": (
        600, None, "POST", lambda n: b'{"kind":"Pod","%b":{%b}}' % (b"k" * n, b",".join([b'"a":{"b":1,"b":1}'] * n)),
    ),
}  # fmt: skip
#: Eight times as many take some eight times as long; where all are compared with all, they take sixty times as long.
MORE, AT_MOST = 8, 20


def cpu_s(bench, case, count):
    """Return the CPU time of a request."""
    _, held, how, made = case
    if held is not None:
        bench.hold(PODS, held(count))
    sent = made(count)
    body = sent if isinstance(sent, bytes) else msgspec.json.encode({**sent, "apiVersion": "v1", "kind": "Pod"})
    asked = Asked(how, "x" if how == "PUT" else "", body) if how in {"POST", "PUT"} else Asked("PATCH", "x", body, how)
    return cpu_of(bench, Place(PODS, ("spec",), "", PODS), asked)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_no_list_is_compared_pairwise(name):
    bench, case = Bench(), PAIRS[name]
    few = case[0]
    least = min(cpu_s(bench, case, few) for _ in range(3))
    assert any(cpu_s(bench, case, MORE * few) < AT_MOST * least + 0.02 for _ in range(3))

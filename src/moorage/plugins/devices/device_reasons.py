"""Why a node has no devices for a pod: each request, and the devices seen there, matching, and in use."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.devices import DeviceClass
from moorage.basis.printable import clip
from moorage.framework.explaining import Detail
from moorage.plugins.devices.claim_requests import Ask, AskError, parse_claim
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.state.view import NodeView

#: How many bytes of the selectors of a request are shown.
_LONGEST = 80


def why_no_devices(wanted: PodDevices, node: NodeView) -> Detail | None:
    """Return which requests a node cannot satisfy, with its numbers of devices.

    Where the devices would be enough for each request alone, constraints, capacity or counters keep them from being allocated
    together: then all requests are listed.
    """
    said = [f"claim {name}: its devices are on other nodes" for name in _elsewhere(wanted, node)]
    numbers: dict[str, int] = {}
    asked = [(claim, ask, _counted(wanted, ask, node)) for claim, ask in _asks(wanted)]
    short = [one for one in asked if one[1].takes_all or one[2][1] - one[2][2] < one[1].number]
    for claim, ask, (seen, matching, used) in short or ([] if said else asked):
        kind = ask.device_class.name if ask.device_class is not None else "no class"
        needs = "all" if ask.takes_all else str(ask.number)
        here = f"{seen} devices here, {matching} match, {used} in use"
        said.append(f"claim {claim}, request {ask.full_name}: needs {needs} {kind}{_selected(ask)}; {here}")
        numbers |= {f"{ask.full_name}.seen": seen, f"{ask.full_name}.matching": matching, f"{ask.full_name}.used": used}
    if not said:
        requests = ", ".join(f"{count} {resource}" for resource, count in sorted(wanted.scalars.items()) if "/" in resource)
        return Detail(f"no devices here for {requests}") if requests else None
    together = "" if short or not asked else "not allocatable together: "
    return Detail(together + "; ".join(said), numbers=numbers)


def _selected(ask: Ask) -> str:
    """Return the selectors of a request, without those of its device class."""
    return f" with {clip(' && '.join(ask.selectors), _LONGEST)}" if ask.selectors else ""


def _elsewhere(wanted: PodDevices, node: NodeView) -> Iterator[str]:
    for index, rows in wanted.unavailable(node):
        if rows.any():
            yield wanted.claims[index].metadata.name


def _asks(wanted: PodDevices) -> Iterator[tuple[str, Ask]]:
    """Yield the requests of the claims that are not allocated yet, the first alternative of each."""
    classes = wanted.snapshot.objects(DeviceClass)
    for claim in wanted.to_allocate:
        for request in parse_claim(claim.spec, classes, wanted.options).requests:
            if request.asks:
                yield claim.metadata.name, request.asks[0]


def _counted(wanted: PodDevices, ask: Ask, node: NodeView) -> tuple[int, int, int]:
    """Return three counts for a node: its devices, the devices that the request selects, and how many of these are in use."""
    state = wanted.device_state
    pools = state.catalog.pools_of(node.first.node, wanted.options.partitions, wanted.options.pool_rule)
    seen = [one.offer for one in pools.candidates]
    matching = []
    for offer in seen:
        try:
            if ask.takes(offer, 0, wanted.options, wanted.meter) and ask.tolerates(offer):
                matching.append(offer)
        except AskError:
            continue
    used = sum(state.ledger.is_held(offer.id, wanted.options.consumable_capacity) for offer in matching)
    return len(seen), len(matching), used

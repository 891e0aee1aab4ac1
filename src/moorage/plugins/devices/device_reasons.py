"""Why a node has no devices for a pod: each request, and the devices seen there, matching, and in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moorage.api.devices import DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec
from moorage.basis.printable import clip
from moorage.framework.explaining import Detail
from moorage.plugins.devices.claim_requests import Ask, AskError, parse_claim
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.devices.pools import SliceDevice
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
    for claim, ask, counts in short or ([] if said else asked):
        seen, matching, used = counts[:3]
        kind = ask.device_class.name if ask.device_class is not None else "no class"
        needs = "all" if ask.takes_all else str(ask.number)
        here = f"{seen} {'device' if seen == 1 else 'devices'} here, {matching} match"
        here += "" if ask.admin else f", {used} in use"
        said.append(f"claim {claim}, request {ask.full_name}: needs {needs} {kind}{_selected(ask)}; {here}{counts.more}")
        numbers |= {f"{ask.full_name}.seen": seen, f"{ask.full_name}.matching": matching, f"{ask.full_name}.used": used}
    if not said:
        asked_for = {resource: count for resource, count in sorted(wanted.scalars.items()) if "/" in resource}
        requests = ", ".join(f"{count} {resource}" for resource, count in asked_for.items())
        held = "; ".join(dict.fromkeys(text for resource in asked_for for text in _of_resource(wanted, resource, node)))
        return (
            Detail(f"no free devices here for {requests}: {held}" if held else f"no devices here for {requests}")
            if requests
            else None
        )
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


def _of_resource(wanted: PodDevices, resource: str, node: NodeView) -> Iterator[str]:
    """Yield what keeps the devices of an extended resource from the pod: a taint, or another pod."""
    classes = wanted.snapshot.objects(DeviceClass)
    for name, one in classes.items():
        if resource not in {one.spec.extended_resource_name, f"deviceclass.resource.kubernetes.io/{name}"}:
            continue
        exactly = ExactDeviceRequest(device_class_name=name, count=1)
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="device", exactly=exactly),)))
        for request in parse_claim(spec, classes, wanted.options).requests:
            counts = _counted(wanted, request.asks[0], node)
            if counts.matching and counts.used:
                yield f"{counts.used} of {counts.matching} in use"
            if counts.more:
                yield counts.more.removeprefix("; ")


class _Counts(NamedTuple):
    """The numbers of a node's devices, of those that a request may use, and of these in use; ``more``: what else there is."""

    seen: int
    matching: int
    used: int
    more: str = ""


def _counted(wanted: PodDevices, ask: Ask, node: NodeView) -> _Counts:
    """Count the devices of a node for a request; one with admin access may use devices in use."""
    state = wanted.device_state
    pools = state.catalog.pools_of(node.first.node, wanted.options.partitions, wanted.options.pool_rule)
    seen = [one.offer for one in pools.candidates]
    matching: list[SliceDevice] = []
    tainted: dict[str, int] = {}
    for offer in seen:
        try:
            if not ask.takes(offer, 0, wanted.options, wanted.meter):
                continue
            if ask.tolerates(offer):
                matching.append(offer)
            else:
                taint = next(one for one in offer.taints if one.effect in {"NoSchedule", "NoExecute"})
                text = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
                tainted[text] = tainted.get(text, 0) + 1
        except AskError:
            continue
    used = 0 if ask.admin else sum(state.ledger.is_held(offer.id, wanted.options.consumable_capacity) for offer in matching)
    more = "".join(f"; {count} {'has' if count == 1 else 'have'} the taint {text}" for text, count in tainted.items())
    shared = sorted({name for offer in matching for name in offer.counters})
    if shared and len(matching) - used >= ask.number:
        named = " and ".join(f"the shared counter {name}" for name in shared)
        more += f"; {named} is used up by the devices in use" + (", which adminAccess does not change" if ask.admin else "")
    return _Counts(len(seen), len(matching), used, more)

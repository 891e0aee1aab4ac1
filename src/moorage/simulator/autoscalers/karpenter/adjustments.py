"""What NodeOverlays and CapacityBuffers change: prices and capacities of instance types, and pods that hold room free.

Source  karpenter, pkg/controllers/nodeoverlay, pkg/cloudprovider/types.go (AdjustedPrice), pkg/state/virtualpods
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from msgspec import structs

from moorage.api.core import Pod, PodTemplateSpec
from moorage.api.meta import Object, ObjectMeta
from moorage.errors import InputError
from moorage.simulator.autoscalers.instance_types import InstanceType, Offering, PriceList, amounts
from moorage.simulator.autoscalers.key_requirements import NODE_POOL, Requirements, add_to, is_compatible, one

__all__ = ["buffer_pods", "with_overlays"]

#: The priority of pods that hold room free.
_LOWEST: Final = -(1 << 31)


def with_overlays(prices: PriceList, documents: Iterable[Mapping[str, Any]]) -> tuple[PriceList, tuple[str, ...]]:
    """Return the types as NodeOverlays change them, and what is not applied, as sentences.

    Overlays apply by weight, the heaviest first. One that would change again, with the same weight, what another changed is
    left out as a conflict.

    Raises  InputError for a price or capacity that cannot be read
    """
    overlays = sorted((dict(held) for held in documents if held.get("kind") == "NodeOverlay"), key=_name, reverse=True)
    overlays.sort(key=lambda held: -int(_spec(held).get("weight") or 0))
    changed: dict[int, tuple[str, int]] = {}
    sizes: dict[str, dict[str, tuple[int, int]]] = {}
    told = []
    for held in overlays:
        name, spec, asked = _name(held), _spec(held), _requirements(_spec(held))
        if NODE_POOL in asked:
            told.append(f"NodeOverlay {name}: it is for certain NodePools, and is not applied")
            continue
        weight, price = int(spec.get("weight") or 0), str(spec.get("price") or spec.get("priceAdjustment") or "")
        capacity = amounts(spec.get("capacity") or {}, f"NodeOverlay {name}: spec.capacity")
        _check(price, name)
        selected = [(kind, found) for kind in prices.types if (found := _selected(kind, asked, prices))]
        offerings = [offering for _, found in selected for offering in found] if price else []
        again = any(changed.get(id(one_), ("", None))[1] == weight for one_ in offerings)
        if again or any(sizes.get(kind.name, {}).get(key, (0, None))[1] == weight for kind, _ in selected for key in capacity):
            told.append(f"NodeOverlay {name}: it conflicts with another of its weight, and is not applied")
            continue
        for offering in offerings:
            changed.setdefault(id(offering), (price, weight))
        for kind, _ in selected:
            held_sizes = sizes.setdefault(kind.name, {})
            for key, value in capacity.items():
                held_sizes.setdefault(key, (value, weight))
    if not changed and not sizes:
        return prices, tuple(told)
    types = tuple(_overlaid(kind, changed, sizes.get(kind.name, {})) for kind in prices.types)
    return PriceList(types, prices.currency, prices.date, prices.well_known), tuple(told)


def _name(held: Mapping[str, Any]) -> str:
    return str((held.get("metadata") or {}).get("name", ""))


def _spec(held: Mapping[str, Any]) -> Mapping[str, Any]:
    return held.get("spec") or {}


def _requirements(spec: Mapping[str, Any]) -> Requirements:
    found: dict[str, Any] = {}
    asked = spec.get("requirements") or ()
    add_to(found, (one(held["key"], held["operator"], tuple(held.get("values") or ())) for held in asked))
    return found


def _check(price: str, name: str) -> None:
    try:
        if price and not isfinite(float(price.removesuffix("%"))):
            raise ValueError(price)
    except ValueError:
        raise InputError(f"NodeOverlay {name}: {price!r} is neither a price nor a change such as -10% or +0.05") from None


def _selected(kind: InstanceType, asked: Requirements, prices: PriceList) -> list[Offering]:
    """Return the offerings of a type that an overlay is for."""
    if not is_compatible(kind.requirements, asked):
        return []
    return [held for held in kind.offerings if is_compatible(asked, held.requirements, prices.well_known)]


def _overlaid(kind: InstanceType, changed: Mapping[int, tuple[str, int]], sizes: Mapping[str, tuple[int, int]]) -> InstanceType:
    offerings = tuple(
        replace(held, price=adjusted(held.price, changed[id(held)][0])) if id(held) in changed else held
        for held in kind.offerings
    )
    return replace(kind, capacity={**kind.capacity, **{key: value for key, (value, _) in sizes.items()}}, offerings=offerings)


def adjusted(price: float, change: str) -> float:
    """Return a price as an overlay changes it: another price, or one that is added, or a share."""
    if change[:1] not in {"+", "-"}:
        return float(change)
    found = price * (1 + float(change[:-1]) / 100) if change.endswith("%") else price + float(change)
    return max(found, 0.0)


def buffer_pods(documents: Iterable[Mapping[str, Any]], objects: Sequence[Object]) -> tuple[list[Pod], tuple[str, ...]]:
    """Return the pods for which CapacityBuffers keep room, and what the input does not say of others, as sentences.

    A buffer counts if it is ready and its status says how many replicas it has. ``objects`` have its template or workload.
    """
    found: list[Pod] = []
    told = []
    for held in documents:
        if held.get("kind") != "CapacityBuffer":
            continue
        meta, status, name = held.get("metadata") or {}, held.get("status") or {}, _name(held)
        conditions = {one_.get("type"): one_.get("status") for one_ in status.get("conditions") or ()}
        ready = conditions.get("ReadyForProvisioning") == "True"
        count, space = int(status.get("replicas") or 0), str(meta.get("namespace", ""))
        if not ready or count <= 0:
            continue
        template = _template(_spec(held), space, objects)
        if template is None:
            told.append(f"the pods of CapacityBuffer {space}/{name}: its template or workload; it keeps no room")
            continue
        kept = (one_ for one_ in template.spec.volumes if one_.persistent_volume_claim is None and one_.ephemeral is None)
        spec = structs.replace(template.spec, node_name="", volumes=tuple(kept), priority=_LOWEST)
        found += [
            Pod(
                metadata=ObjectMeta(
                    name=f"capacity-buffer-{name}-{at}", namespace=space, uid=f"{meta.get('uid', name)}-{at}",
                    labels=template.metadata.labels,
                ),
                spec=spec,
            )
            for at in range(1, count + 1)
        ]  # fmt: skip
    return found, tuple(told)


def _template(spec: Mapping[str, Any], space: str, objects: Sequence[Object]) -> PodTemplateSpec | None:
    given = {"kind": "PodTemplate", **spec["podTemplateRef"]} if spec.get("podTemplateRef") else spec.get("scalableRef") or {}
    named = given.get("kind"), space, given.get("name")
    held = next((one_ for one_ in objects if (type(one_).__name__, one_.namespace, one_.name) == named), None)
    template = getattr(held, "template", None) or getattr(getattr(held, "spec", None), "template", None)
    return template if isinstance(template, PodTemplateSpec) else None

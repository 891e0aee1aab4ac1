"""What NodeOverlays and CapacityBuffers change: prices and capacities of instance types, and pods that hold room free.

Source  karpenter, pkg/controllers/nodeoverlay, pkg/cloudprovider/types.go (AdjustedPrice), pkg/state/virtualpods
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final

from msgspec import structs

from moorage.api.core import Object, ObjectMeta, Pod, PodTemplateSpec
from moorage.errors import InputError
from moorage.simulator.autoscalers import key_requirements as keys
from moorage.simulator.autoscalers.instance_types import InstanceType, PriceList, amounts
from moorage.simulator.autoscalers.karpenter.scene import conditions_of, part

#: The priority of pods that hold room free.
_LOWEST: Final = -(1 << 31)


@dataclass(eq=False)
class _Overlaid:
    """A type as overlays change it for a NodePool: the changes of prices by offering, and capacities.

    ``light``   by offering, the weight of the last overlay that selected it; ``last``: the same of capacities, with their names
    """

    kind: InstanceType
    pool: str
    labels: Mapping[str, str]
    prices: dict[int, str] = field(default_factory=dict)
    light: dict[int, int] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    last: tuple[int, Collection[str]] = (0, ())

    def selected(self, asked: keys.Requirements, undefined: Collection[str]) -> list[int]:
        """Return the offerings that an overlay is for."""
        own = keys.merged(keys.of_labels({keys.NODE_POOL: self.pool}), keys.of_labels(self.labels), self.kind.requirements)
        if not keys.is_compatible(own, asked):
            return []
        offerings = enumerate(self.kind.offerings)
        return [at for at, held in offerings if keys.is_compatible(asked, held.requirements, undefined)]

    @property
    def form(self) -> tuple[Any, ...]:
        return tuple(sorted(self.prices.items())), tuple(sorted(self.capacity.items()))

    def made(self, pools: Collection[str]) -> InstanceType:
        """Return the type for these NodePools; () if for all."""
        offerings = tuple(
            replace(held, price=adjusted(held.price, self.prices[at])) if at in self.prices else held
            for at, held in enumerate(self.kind.offerings)
        )
        own = {keys.NODE_POOL: keys.one(keys.NODE_POOL, "In", pools)} if pools else {}
        return replace(
            self.kind, requirements={**self.kind.requirements, **own}, capacity={**self.kind.capacity, **self.capacity},
            offerings=offerings,
        )  # fmt: skip


def with_overlays(prices: PriceList, documents: Iterable[Mapping[str, Any]]) -> tuple[PriceList, tuple[str, ...]]:
    """Return the types as NodeOverlays change them, and what is not applied, as sentences.

    Overlays apply by weight, the heaviest first. One that would change again, with the same weight, what another changed is
    left out as a conflict. A type that is not the same for all NodePools becomes several, each for some of them.

    Raises  InputError for a price or capacity that cannot be read
    """
    held = list(documents)
    overlays = [one_ for one_ in held if one_.get("kind") == "NodeOverlay"]
    if not overlays:
        return prices, ()
    labels = "spec", "template", "metadata", "labels"
    pools = {_name(one_): part(one_, *labels) for one_ in held if one_.get("kind") == "NodePool"}
    of_types = [[_Overlaid(kind, *pool) for pool in (pools or {"": {}}).items()] for kind in prices.types]
    told = []
    for held_ in sorted(overlays, key=lambda one_: (int(part(one_, "spec").get("weight") or 0), _name(one_)), reverse=True):
        name, spec = _name(held_), part(held_, "spec")
        weight, price = int(spec.get("weight") or 0), str(spec.get("price") or spec.get("priceAdjustment") or "")
        capacity = amounts(spec.get("capacity") or {}, f"NodeOverlay {name}: spec.capacity")
        try:
            if price and not isfinite(float(price.removesuffix("%"))):
                raise ValueError(price)
        except ValueError:
            text = f"NodeOverlay {name}: {price!r} is neither a price nor a change such as -10% or +0.05"
            raise InputError(text) from None
        asked = keys.of_data(spec.get("requirements") or ())
        found = [(of, rows) for every in of_types for of in every if (rows := of.selected(asked, prices.well_known))]
        if any(
            (price and any(of.light.get(row) == weight for row in rows))
            or (of.last[0] == weight and not capacity.keys().isdisjoint(of.last[1])) for of, rows in found
        ):  # fmt: skip
            told.append(f"NodeOverlay {name}: it conflicts with another of its weight, and is not applied")
            continue
        for of, rows in found:
            if price:
                of.prices = {**dict.fromkeys(rows, price), **of.prices}
                of.light |= dict.fromkeys(rows, weight)
            if capacity:
                of.capacity, of.last = {**capacity, **of.capacity}, (weight, capacity.keys())
    types = []
    for every in of_types:
        forms: dict[Any, list[_Overlaid]] = {}
        for of in every:
            forms.setdefault(of.form, []).append(of)
        types += [alike[0].made([of.pool for of in alike] if len(forms) > 1 else ()) for alike in forms.values()]
    return PriceList(tuple(types), prices.currency, prices.date, prices.well_known), tuple(told)


def _name(held: Mapping[str, Any]) -> str:
    return str(part(held, "metadata").get("name", ""))


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
        meta, status, name = part(held, "metadata"), part(held, "status"), _name(held)
        ready = conditions_of(held).get("ReadyForProvisioning", {}).get("status") == "True"
        count, space = int(status.get("replicas") or 0), str(meta.get("namespace", ""))
        if not ready or count <= 0:
            continue
        template = _template(part(held, "spec"), space, objects)
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

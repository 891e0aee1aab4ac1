"""Instance types, where and for what price they are offered: read from a file, in the format of Karpenter's KWOK provider.

The file is a list of types, or an object with ``currency``, ``date`` and the list ``types``. A type has ``name``,
``resources``, ``offerings`` (``Price``, ``Available``, ``Requirements``), ``architecture`` and ``operatingSystems``; beyond
that format ``labels`` for its other labels, and ``overhead``: what system daemons take.

Source  karpenter, kwok/cloudprovider/helpers.go; pkg/cloudprovider/types.go
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import convert, structs

from moorage.api.core import Node, NodeSpec, Taint
from moorage.api.pod_requests import amount
from moorage.api.quantity import QuantityError
from moorage.basis.files import read_file
from moorage.errors import InputError
from moorage.simulator.autoscalers import key_requirements as keys

_READY: Final = {"type": "Ready", "status": "True"}
_OVERHEAD: Final = {"cpu": "100m", "memory": "10Mi"}
_AWS: Final = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)")
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
#: Bytes of a file: all types of a large provider take 6 MB.
LARGEST: Final = 64 << 20
_KWOK: Final = "karpenter.kwok.sh"
#: The capacity types in the order in which a provider takes them.
_LAUNCHED: Final = ("reserved", "spot", "on-demand")
#: How many answers are remembered at the most.
_MOST_REMEMBERED: Final = 4096
_NONE: Final = keys.KeyRequirement("")
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Offering:
    """A zone and capacity type in which a type is offered, and the price of an hour."""

    requirements: keys.Requirements
    price: float
    available: bool = True

    @cached_property
    def zone(self) -> str:
        return min(self.requirements.get(keys.ZONE, _NONE).values, default="")

    @cached_property
    def capacity_type(self) -> str:
        return min(self.requirements.get(keys.CAPACITY_TYPE, _NONE).values, default="")


@dataclass(frozen=True, eq=False)
class InstanceType:
    """A type of machine. ``capacity`` and ``allocatable`` are in the scheduler's units."""

    name: str
    requirements: keys.Requirements
    capacity: Mapping[str, int]
    overhead: Mapping[str, int]
    offerings: tuple[Offering, ...]

    @cached_property
    def available(self) -> tuple[Offering, ...]:
        return tuple(offering for offering in self.offerings if offering.available)

    @cached_property
    def allocatable(self) -> dict[str, int]:
        """What pods can use. Huge pages are taken from memory."""
        left = {name: held - self.overhead.get(name, 0) for name, held in self.capacity.items()}
        pages = sum(held for name, held in self.capacity.items() if name.startswith("hugepages-"))
        if pages:
            left["memory"] = max(left.get("memory", 0) - pages, 0)
        return left

    def is_for(self, pool: str) -> bool:
        """Return True if a NodePool has the type in this form."""
        asked = self.requirements.get(keys.NODE_POOL)
        return asked is None or asked.has(pool)

    def price_in(self, zone: str, capacity_type: str) -> float | None:
        """Return the price of an hour in a zone; None if the type is not offered there."""
        found = (one_.price for one_ in self.offerings if one_.zone == zone and one_.capacity_type == capacity_type)
        return next(found, None)

    def offered(self, requirements: keys.Requirements, undefined: Collection[str]) -> list[Offering]:
        """Return the available offerings that requirements allow."""
        return [held for held in self.available if keys.is_compatible(requirements, held.requirements, undefined)]

    def cheapest(self, requirements: keys.Requirements, undefined: Collection[str]) -> float:
        """Return the lowest price of the offerings that requirements allow; infinity if there are none."""
        return min((held.price for held in self.offered(requirements, undefined)), default=inf)

    def worst_launch_price(self, requirements: keys.Requirements, undefined: Collection[str]) -> float:
        """Return the highest price of the capacity type that a launch would take: reserved, else spot, else on demand."""
        held = self.offered(requirements, undefined)
        for capacity_type in _LAUNCHED:
            prices = [one_.price for one_ in held if one_.capacity_type == capacity_type]
            if prices:
                return max(prices)
        return inf


def missing_min_values(types: Sequence[InstanceType], requirements: keys.Requirements) -> tuple[int, dict[str, int]]:
    """Return how many of the first types give enough distinct values, and the labels that have too few, with their number.

    Source  karpenter, pkg/cloudprovider/types.go, SatisfiesMinValues
    """
    asked = {key: held.min_values for key, held in requirements.items() if held.min_values is not None}
    if not asked:
        return 0, {}
    found: dict[str, set[str]] = {key: set() for key in asked}
    for at, held in enumerate(types):
        for key, values in found.items():
            if key in held.requirements:
                values.update(held.requirements[key].values)
        if all(len(values) >= asked[key] for key, values in found.items()):
            return at + 1, {}
    return len(types), {key: len(values) for key, values in found.items() if types and len(values) < asked[key]}


class Remembered(dict[Hashable, Any]):
    """Answers by what decides them: simulations of one cluster after the other ask the same."""

    def of(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what was made for a key before, or make it."""
        if key not in self:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[key] = make()
        found: _T = self[key]
        return found


@dataclass(frozen=True)
class PriceList:
    """All types of a file. ``currency`` and ``date`` are empty if the file does not give them."""

    types: tuple[InstanceType, ...] = ()
    currency: str = ""
    date: str = ""
    well_known: frozenset[str] = field(default=keys.WELL_KNOWN)
    remembered: Remembered = field(default_factory=Remembered, repr=False, compare=False)

    @cached_property
    def _by_name(self) -> dict[str, list[InstanceType]]:
        found: dict[str, list[InstanceType]] = {}
        for held in self.types:
            found.setdefault(held.name, []).append(held)
        return found

    def of_node(self, labels: Mapping[str, str]) -> InstanceType | None:
        """Return the type of a node, by its labels; None if it is unknown. NodeOverlays may change it for some NodePools."""
        pool = labels.get(keys.NODE_POOL, "")
        found = self._by_name.get(labels.get(keys.INSTANCE_TYPE, ""), ())
        return next((held for held in found if held.is_for(pool)), None)

    def price_of(self, labels: Mapping[str, str]) -> float | None:
        """Return the price of an hour of a node, by its labels; None if its type is unknown."""
        held = self.of_node(labels)
        if held is None:
            return None
        found = held.price_in(labels.get(keys.ZONE, ""), labels.get(keys.CAPACITY_TYPE, "on-demand"))
        cheapest = held.cheapest({}, self.well_known) if found is None else found
        return cheapest if cheapest < inf else None

    @cached_property
    def _offered_keys(self) -> frozenset[str]:
        return frozenset(key for held in self.types for offering in held.offerings for key in offering.requirements)

    def cheapest(self, requirements: keys.Requirements) -> npt.NDArray[np.float64]:
        """Return for each type the lowest price of the offerings that requirements allow; infinity if there are none."""
        key = "cheapest", *(requirements.get(name) for name in sorted(self._offered_keys))
        return self.remembered.of(key, lambda: np.array([held.cheapest(requirements, self.well_known) for held in self.types]))


def node_of(held: InstanceType, labels: Mapping[str, str], name: str, taints: tuple[Taint, ...] = ()) -> Node:
    """Return a node of an instance type that is ready."""
    status = {
        which: {key: f"{value}m" if key == "cpu" else str(value) for key, value in amounts_.items()}
        for which, amounts_ in (("capacity", held.capacity), ("allocatable", held.allocatable))
    }
    own = {**labels, keys.INSTANCE_TYPE: held.name, keys.HOSTNAME: name}
    given = {"metadata": {"name": name, "uid": name, "labels": own}, "status": {**status, "conditions": [_READY]}}
    return structs.replace(convert(given, Node), spec=NodeSpec(taints=taints))


def launched(
    held: InstanceType, offering: Offering, requirements: keys.Requirements, name: str, taints: tuple[Taint, ...]
) -> Node:
    """Return the node of a type that is launched in an offering, with the labels that requirements leave no choice of."""
    known = {**held.requirements, **requirements, **offering.requirements}
    return node_of(held, {key: asked.only for key, asked in known.items() if asked.only is not None}, name, taints)


def read_price_list(path: str) -> PriceList:
    """Read a file of instance types.

    Raises  InputError that names the field and what it needs
    """
    return price_list(read_file(path, LARGEST), path)


def price_list(text: str | bytes, path: str) -> PriceList:
    """Read the text of a file of instance types, ``path`` in errors.

    Raises  InputError that names the field and what it needs
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: no JSON: {error}; expected a list of instance types of Karpenter's KWOK provider") from None
    whole = given if isinstance(given, Mapping) else {"types": given}
    if not isinstance(whole.get("types"), list) or not whole["types"]:
        raise InputError(f"{path}: expected a list of instance types, or an object with the list types")
    types = [_type(entry, f"{path}[{at}]") for at, entry in enumerate(whole["types"])]
    twice, times = Counter(held.name for held in types).most_common(1)[0]
    if times > 1:
        raise InputError(f"{path}: two instance types have the name {twice!r}; give each a name of its own")
    offered = {key for held in types for offering in held.offerings for key in offering.requirements}
    known = offered.union(*(held.requirements for held in types))
    return PriceList(tuple(types), str(whole.get("currency", "")), str(whole.get("date", "")), keys.WELL_KNOWN | known)


def _type(entry: Any, where: str) -> InstanceType:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise InputError(f"{where}: expected an instance type with name, resources and offerings")
    name = entry["name"]
    given = {"pods": "110", **_part(entry, "resources", where, dict)}
    cpu, sized, parts = str(given.get("cpu", "")), _AWS.fullmatch(name), re.split(r"[.-]", name, maxsplit=1)
    offerings = tuple(
        _offering(held, f"{where}.offerings[{at}]") for at, held in enumerate(_part(entry, "offerings", where, list))
    )
    labels = {
        keys.INSTANCE_TYPE: (name,),
        "kubernetes.io/arch": (str(entry.get("architecture", "amd64")),),
        "kubernetes.io/os": tuple(map(str, _part(entry, "operatingSystems", where, list) or ("linux",))),
        keys.ZONE: tuple({held.zone for held in offerings}),
        keys.CAPACITY_TYPE: tuple({held.capacity_type for held in offerings}),
        f"{_KWOK}/instance-size": (sized[1] if sized else cpu,),
        f"{_KWOK}/instance-family": (parts[0] if len(parts) > 1 else name[:1],),
        f"{_KWOK}/instance-cpu": (cpu,),
        f"{_KWOK}/instance-memory": (str(given.get("memory", "")),),
        **{str(key): (str(value),) for key, value in _part(entry, "labels", where, dict).items()},
    }
    return InstanceType(
        name, {key: keys.one(key, "In", values) for key, values in labels.items()}, amounts(given, f"{where}.resources"),
        amounts(_part(entry, "overhead", where, dict) or _OVERHEAD, f"{where}.overhead"), offerings,
    )  # fmt: skip


def _offering(entry: Any, where: str) -> Offering:
    price = entry.get("Price") if isinstance(entry, Mapping) else None
    if isinstance(price, bool) or not isinstance(price, int | float) or not isfinite(price) or price < 0:
        raise InputError(f"{where}.Price: expected the price of an hour, found {str(price)[:40]!r}")
    found = {}
    for at, asked in enumerate(_part(entry, "Requirements", where, list)):
        if not isinstance(asked, Mapping) or not asked.get("key") or asked.get("operator") not in _OPERATORS:
            raise InputError(f"{where}.Requirements[{at}]: expected key, operator ({', '.join(sorted(_OPERATORS))}) and values")
        held = keys.one(str(asked["key"]), str(asked["operator"]), tuple(map(str, asked.get("values") or ())))
        found[held.key] = held
    for key in (keys.ZONE, keys.CAPACITY_TYPE):
        if key not in found or found[key].only is None:
            raise InputError(f"{where}.Requirements: expected {key} with operator In and one value")
    return Offering(found, float(price), entry.get("Available", True) is not False)


def _part(entry: Mapping[str, Any], name: str, where: str, kind: type[_T]) -> _T:
    """Return a list or an object of an entry; an empty one if it has none."""
    found = entry.get(name) or kind()
    if not isinstance(found, kind):
        raise InputError(f"{where}.{name}: expected {'an object' if kind is dict else 'a list'}, found {str(found)[:40]!r}")
    return found


def amounts(given: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return quantities in the scheduler's units.

    Raises  InputError
    """
    found = {}
    for name, text in given.items():
        try:
            found[str(name)] = amount(str(name), str(text))
        except QuantityError as error:
            raise InputError(f"{where}.{name}: {error}") from None
    return found

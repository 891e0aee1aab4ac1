"""Files of instance types, and what is chosen among their offerings."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from moorage.errors import InputError
from moorage.simulator.autoscalers.instance_types import (
    InstanceType,
    PriceList,
    missing_min_values,
    read_price_list,
)  # fmt: skip
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE, of_labels, one


def _offering(zone: str, capacity_type: str, price: float, **more: Any) -> dict[str, Any]:
    asked = [(CAPACITY_TYPE, capacity_type), (ZONE, zone)]
    return {"Price": price, "Requirements": [{"key": k, "operator": "In", "values": [v]} for k, v in asked], **more}


def _type(name: str, *offerings: dict[str, Any], cpu: str = "4", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"cpu": cpu, "memory": "8Gi"}, "offerings": list(offerings), **more}


def _read(tmp_path: Path, *types: Any, **wrapped: Any) -> PriceList:
    path = tmp_path / "types.json"
    path.write_text(json.dumps({**wrapped, "types": types} if wrapped else list(types)))
    return read_price_list(str(path))


def _one(tmp_path: Path) -> InstanceType:
    return _read(
        tmp_path,
        _type(
            "c5.large", _offering("a", "spot", 0.3), _offering("b", "spot", 0.4), _offering("a", "on-demand", 1.0),
            _offering("b", "on-demand", 1.2), _offering("c", "spot", 0.1, Available=False),
        ),
    ).types[0]  # fmt: skip


def test_a_type_has_what_the_provider_derives(tmp_path: Path) -> None:
    found = _one(tmp_path)
    assert found.capacity == {"pods": 110, "cpu": 4000, "memory": 8 << 30}
    assert found.allocatable == {"pods": 110, "cpu": 3900, "memory": (8 << 30) - (10 << 20)}
    assert {key: sorted(held.values) for key, held in found.requirements.items()} == {
        INSTANCE_TYPE: ["c5.large"], "kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"], ZONE: ["a", "b", "c"],
        CAPACITY_TYPE: ["on-demand", "spot"], "karpenter.kwok.sh/instance-size": ["large"],
        "karpenter.kwok.sh/instance-family": ["c5"], "karpenter.kwok.sh/instance-cpu": ["4"],
        "karpenter.kwok.sh/instance-memory": ["8Gi"],
    }  # fmt: skip


def test_currency_date_labels_and_overhead_are_optional(tmp_path: Path) -> None:
    more: dict[str, Any] = {"labels": {"karpenter.k8s.aws/instance-cpu": 4}, "overhead": {"cpu": "1"}}
    found = _read(tmp_path, _type("m", _offering("a", "spot", 1), **more), currency="USD", date="2026-08-20")
    assert (found.currency, found.date) == ("USD", "2026-08-20")
    assert "karpenter.k8s.aws/instance-cpu" in found.well_known >= WELL_KNOWN
    assert [held.allocatable["cpu"] for held in found.types if held.name == "m"] == [3000]
    assert _read(tmp_path, _type("m", _offering("a", "spot", 1))).currency == ""


def test_huge_pages_are_taken_from_memory(tmp_path: Path) -> None:
    given = _type("m", _offering("a", "spot", 1), overhead={"memory": "1Gi"})
    given["resources"]["hugepages-2Mi"] = "2Gi"
    assert _read(tmp_path, given).types[0].allocatable["memory"] == 5 << 30


#: What is asked for → the cheapest offering, the price that a launch may cost at worst.
_PRICES = {
    "nothing: spot is launched": ({}, 0.3, 0.4),
    "on demand": ({CAPACITY_TYPE: "on-demand"}, 1.0, 1.2),
    "a zone": ({ZONE: "a"}, 0.3, 0.3),
    "a zone on demand": ({ZONE: "b", CAPACITY_TYPE: "on-demand"}, 1.2, 1.2),
    "a zone where nothing is available": ({ZONE: "c"}, inf, inf),
    "a zone that is unknown": ({ZONE: "d"}, inf, inf),
}


@pytest.mark.parametrize(("asked", "cheapest", "worst"), _PRICES.values(), ids=_PRICES)
def test_prices(tmp_path: Path, asked: dict[str, str], cheapest: float, worst: float) -> None:
    found, wanted = _one(tmp_path), of_labels(asked)
    assert found.cheapest(wanted, WELL_KNOWN) == cheapest
    assert found.worst_launch_price(wanted, WELL_KNOWN) == worst
    assert (found.price_in("b", "on-demand"), found.price_in("x", "spot")) == (1.2, None)


def test_types_are_ordered_by_their_cheapest_offering(tmp_path: Path) -> None:
    types = _read(
        tmp_path,
        _type("x", _offering("a", "spot", 3)),
        _type("y", _offering("a", "spot", 1)),
        _type("z", _offering("b", "spot", 2)),
    ).types
    prices = PriceList(tuple(types))
    for asked, order in (({}, ["y", "z", "x"]), (of_labels({ZONE: "a"}), ["y", "x", "z"])):
        for _ in range(2):  # the second answer is remembered
            assert [types[row].name for row in sorted(range(len(types)), key=prices.cheapest(asked).__getitem__)] == order


#: minValues of the family, the types given → types needed, labels that fall short (the two examples of the upstream comment).
_MIN_VALUES = {
    "three families": (3, "c4.large c5.xlarge m4.2xlarge", 3, {}),
    "two of three families": (3, "c4.large c4.xlarge c5.2xlarge", 3, {"karpenter.kwok.sh/instance-family": 2}),
    "the first two suffice": (2, "c4.large c5.large m4.large", 2, {}),
}


@pytest.mark.parametrize(("least", "names", "needed", "short"), _MIN_VALUES.values(), ids=_MIN_VALUES)
def test_min_values(tmp_path: Path, least: int, names: str, needed: int, short: dict[str, int]) -> None:
    types = _read(tmp_path, *(_type(name, _offering("a", "spot", 1)) for name in names.split())).types
    family = one("karpenter.kwok.sh/instance-family", "In", ("c4", "c5", "m4"), least)
    assert missing_min_values(types, {family.key: family}) == (needed, short)
    assert missing_min_values(types, {}) == (0, {})


_FAULTS: dict[str, tuple[Any, str]] = {
    "no list": ({"types": {}}, "expected a list of instance types"),
    "no name": ([{}], r"\[0\]: expected an instance type with name"),
    "no price": ([_type("a", {"Requirements": []})], r"\[0\].Price: expected the price of an hour, found 'None'"),
    "a negative price": ([_type("a", _offering("a", "spot", -1))], "Price"),
    "no zone": ([_type("a", {"Price": 1, "Requirements": []})], "Requirements: expected topology.kubernetes.io/zone"),
    "no quantity": ([_type("a", cpu="many")], r"resources.cpu: .*many"),
    "one name twice": ([_type("a"), _type("a")], "two instance types have the name 'a'"),
    "an unknown operator": (
        [_type("a", {"Price": 1, "Requirements": [{"key": "k", "operator": "Is"}]})], r"\[0\]: expected key, operator"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "told"), _FAULTS.values(), ids=_FAULTS)
def test_a_fault_names_its_place(tmp_path: Path, content: Any, told: str) -> None:
    path = tmp_path / "types.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=told):
        read_price_list(str(path))


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "types.json").write_text("- a")
    with pytest.raises(InputError, match="no JSON"):
        read_price_list(str(path))

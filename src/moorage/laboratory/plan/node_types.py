"""Node types: kinds of nodes that can be bought, with a price, a limit and zones."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod, Taint
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.api.workloads import DaemonSet
from moorage.basis.files import read_file
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.cluster_objects import ASIDE, ObjectLike, cluster_input, read_given, text_of
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.node_groups import group_nodes
from moorage.laboratory.surroundings import Surroundings
from moorage.simulator.admission import admit
from moorage.simulator.autoscalers.instance_types import LARGEST, InstanceType, Offering, launched, price_list
from moorage.simulator.autoscalers.key_requirements import Requirements
from moorage.simulator.owners import controller_of
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.workloads import expand

# Nodes that do not exist yet: copies of a node, and the DaemonSet pods that they get.


def like_node(pattern: Node, name: str) -> Node:
    """Return an empty, schedulable node like another."""
    added = apply([pattern], Change("cluster", "add-node", f"node/{name}", "", None, f"like {pattern.name}"))
    return next(obj for obj in added if isinstance(obj, Node) and obj.name == name)


def policies_of(objects: Iterable[Object]) -> list[Object]:
    """Return the objects that admission reads, and the DaemonSets."""
    workloads = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "CronJob")
    wanted = {kind for kind in ASIDE if kind.__name__ not in workloads}
    return [obj for obj in objects if type(obj) in wanted or type(obj).__name__ == "StorageClass"]


def daemon_pods(nodes: Iterable[Node], policies: Iterable[Object]) -> list[Pod]:
    """Return the DaemonSet pods that new nodes get, admitted."""
    held = list(policies)
    daemons = [obj for obj in held if isinstance(obj, DaemonSet)]
    if not daemons:
        return []
    return list(admit(expand(cluster_input([*held, *nodes]))).pods)


def drawn_daemon_pods(before: Node, after: Node, policies: Iterable[Object]) -> list[Pod]:
    """Return the DaemonSet pods that a changed node gets and would not have had as it was, admitted."""
    held = list(policies)
    had = {_daemon_of(pod) for pod in daemon_pods([before], held)}
    return [pod for pod in daemon_pods([after], held) if _daemon_of(pod) not in had]


def _daemon_of(pod: Pod) -> tuple[str, str]:
    owner = controller_of(pod.metadata)
    return pod.namespace, "" if owner is None else owner.name


def add_nodes(simulation: SimulatedCluster, nodes: Sequence[Node], policies: Iterable[Object]) -> list[Pod]:
    """Add nodes to a simulation and place their DaemonSet pods. Return those that found no place."""
    pods = daemon_pods(nodes, policies)
    simulation.tell([*map(Seen, nodes), *map(Seen, pods)])
    for pod in pods:
        simulation.attempt(simulation.pods[pod.metadata.uid])
    return [pod for pod in pods if not simulation.pods[pod.metadata.uid].spec.node_name]


def admitted(objects: Iterable[Any], policies: Iterable[Object]) -> tuple[list[Object], tuple[str, ...]]:
    """Return pods and claims after admission, with notes on those that an API server would reject."""
    held = [obj for obj in policies if not isinstance(obj, DaemonSet)]
    known = {id(obj) for obj in held}
    made = admit(cluster_input([*held, *objects]))
    fresh: list[Object] = [*made.persistent_volume_claims, *made.pods]
    rest = [obj for obj in objects if not isinstance(obj, Pod) and type(obj).__name__ != "PersistentVolumeClaim"]
    return [obj for obj in (*rest, *fresh) if id(obj) not in known], made.report.notes


ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_FIELDS: Final = frozenset(["name", "node", "like", "price", "max", "zones"])


class NodeType(Struct, frozen=True, kw_only=True):
    """A kind of node.

    ``node``   a manifest, as struct, dict, YAML text or ``Path``; or ``like``: a node or a node group of the cluster
    ``price``  of one node, in any unit
    ``max``    how many there can be; None: any number
    ``zones``  new nodes are labelled with these zones in turn; empty: the manifest's own label
    """

    name: str
    node: ObjectLike | None = None
    like: str = ""
    price: float = 1.0
    max: int | None = None
    zones: tuple[str, ...] = ()


class TypeLimit(Struct, frozen=True):
    """What new nodes may come to in all. ``weights``: what a node of each type counts; ``text``: of a limit that is reached."""

    text: str
    most: float
    weights: Mapping[str, float]


def limits_of(types: Iterable[NodeType]) -> tuple[TypeLimit, ...]:
    """Return the limits of types: ``max`` of each that has one."""
    limited = ((one.name, one.max) for one in types if one.max is not None)
    return tuple(TypeLimit(f"{name}: its max of {most} is reached", most, {name: 1.0}) for name, most in limited)


class Offer(Struct, frozen=True):
    """Nodes of one type that differ only in names and zones; ``zones`` are assigned in turn."""

    type: NodeType
    pattern: Node
    zones: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.type.name

    def node(self, number: int, taken: Iterable[str] = ()) -> Node:
        """Return the node with this number, counted from 0."""
        zone = f"-{self.zones[0]}" if len(self.zones) == 1 else ""
        name = f"{self.type.name}{zone}-new-{number + 1}"
        while name in taken:
            name += "-x"
        made = like_node(self.pattern, name)
        labels = {**made.labels, _HOSTNAME: name}
        if self.zones:
            labels[ZONE] = self.zones[number % len(self.zones)]
        return replace(made, metadata=replace(made.metadata, labels=labels))


def read_types(given: Sequence[NodeType | Mapping[str, Any]] | str | PathLike[str]) -> list[NodeType]:
    """Return the types of a list, of YAML text or of a file: a list of ``{name, node | like, price, max, zones}``.

    Text is never the name of a file, as it may come with a request; a ``Path`` is.

    A file may also have Node manifests, each a type of its name without a price, or be a list of instance types with offerings,
    as ``read_price_list`` takes it.

    Raises  InputError that names the field
    """
    where = "node types"
    if isinstance(given, str | PathLike):
        text = given
        if not isinstance(text, str):
            where = fspath(text)
            text = _read(where)
        given = _parsed(text, where, nodes=True)
        if given and isinstance(given[0], Mapping) and "offerings" in given[0]:
            prices = price_list(text, where)
            return types_of_offerings(prices.types, prices.well_known)
    elif not isinstance(given, list | tuple):
        raise InputError(f"{where}: expected a list of node types")
    found = [one if isinstance(one, NodeType) else _type(one, f"{where}[{at}]") for at, one in enumerate(given)]
    if not found:
        raise InputError(f"{where}: no node type; give at least one, with a name and a node")
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where}: two types have the name {twice}")
    return found


def types_of_offerings(
    types: Iterable[InstanceType], undefined: Collection[str], requirements: Requirements | None = None, pool: str = "",
    taints: tuple[Taint, ...] = (),
) -> list[NodeType]:  # fmt: skip
    """Return a node type for each instance type, capacity type and price, in the zones in which it is offered so.

    ``requirements``, ``taints``  of a NodePool; ``undefined``  labels that they may ask for although a type has none
    """
    found, requirements = [], requirements or {}
    for held in types:
        zones: dict[tuple[str, float], list[Offering]] = {}
        for one in held.offered(requirements, undefined):
            zones.setdefault((one.capacity_type, one.price), []).append(one)
        kinds = [kind for kind, _ in zones]
        for (kind, price), within in zones.items():
            name = "-".join(filter(None, (pool, held.name, kind, within[0].zone if kinds.count(kind) > 1 else "")))
            node = launched(held, within[0], requirements, name, taints)
            found.append(NodeType(name=name, node=node, price=price, zones=tuple(sorted(one.zone for one in within))))
    return found


def read_list(path: str) -> list[Any]:
    """Return the list in a file of node types, unchecked.

    Raises  InputError
    """
    return _parsed(_read(path), path)


def _read(path: str) -> str:
    data = read_file(path, LARGEST)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is not UTF-8: {error.reason} at byte {error.start}") from None


def _parsed(text: str, where: str, *, nodes: bool = False) -> list[Any]:
    """Return the list in a text; with ``nodes``, also of one or more manifests of nodes."""
    import yaml  # loaded only for price lists

    try:
        found = json.loads(text)  # JSON is YAML, but a long list of prices takes YAML's parser seconds
    except ValueError:
        try:
            found = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "it cannot be parsed"
            line = "" if mark is None else f":{mark.line + 1}"
            raise InputError(f"{where}{line}: no YAML: {problem}") from None
        found = [one for one in found if one is not None] if nodes and len(found) > 1 else found[0] if found else None
    if nodes and isinstance(found, dict) and found.get("kind") in {"Node", "NodeList", "List"}:
        items = found.get("items")
        found = [found] if found["kind"] == "Node" else items if isinstance(items, list) else []
    if isinstance(found, dict) and "types" in found and set(found) <= {"types", "currency", "date"}:
        found = found["types"]
    if not isinstance(found, list):
        raise InputError(
            f"{where}: expected a list of node types, such as {{name: large, price: 1, like: NODE}}, or Node manifests;"
            " moorage help plan has the fields"
        )
    return found


def _type(given: Mapping[str, Any], where: str) -> NodeType:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(f"{where}: expected a mapping with name, node or like, price, max and zones")
    if given.get("kind") == "Node":
        metadata = given.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str) or not name:
            raise InputError(f"{where}.metadata.name: a type needs a name")
        return NodeType(name=name, node=given)
    unknown = sorted(set(given) - _FIELDS)
    if unknown:
        raise InputError(f"{where}.{unknown[0]}: no such field; use {', '.join(sorted(_FIELDS))}")
    if isinstance(given.get("node"), str) and text_of(given["node"]) is None:
        raise InputError(f"{where}.node: expected a manifest, as a mapping or YAML text; the name of a file is none")
    name, price, most = given.get("name"), given.get("price", 1.0), given.get("max")
    zones, like = given.get("zones") or (), given.get("like") or ""
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}.name: a type needs a name")
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e12:
        raise InputError(f"{where}.price: {price!r} is no price; use a number from 0")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
        raise InputError(f"{where}.max: {most!r} is no limit; use a whole number from 0")
    if not isinstance(zones, list | tuple) or not all(isinstance(zone, str) for zone in zones):
        raise InputError(f"{where}.zones: expected a list of zones")
    if not isinstance(like, str) or bool(like) == (given.get("node") is not None):
        raise InputError(f"{where}: give either node (a manifest) or like (a node or a node group)")
    return NodeType(name=name, node=given.get("node"), like=like, price=float(price), max=most, zones=tuple(zones))


def offers_of_types(types: Iterable[NodeType], nodes: Sequence[Node]) -> Iterator[Offer]:
    """Yield an offer for each type. ``nodes`` are those of the cluster.

    Raises  InputError for a node or a group that does not exist, and for a manifest that is no node
    """
    for one in types:
        yield Offer(one, _pattern(one, nodes), one.zones)


def nodes_to_buy(types: Iterable[NodeType], nodes: Sequence[Node]) -> tuple[dict[str, float], list[Node]]:
    """Return what one more node like each of these costs, by its name, and the nodes of types that the cluster does not have.

    Raises  InputError
    """
    prices: dict[str, float] = {}
    further: list[Node] = []
    for one in types:
        if one.like:
            prices |= {node.name: one.price for node in _members(one, nodes)}
            continue
        pattern = _pattern(one, nodes)
        for zone in one.zones or ("",):
            name = f"{one.name}-{zone}" if len(one.zones) > 1 else one.name
            labels = {**pattern.labels, **({ZONE: zone} if zone else {})}
            further.append(replace(pattern, metadata=replace(pattern.metadata, name=name, labels=labels)))
            prices[name] = one.price
    return prices, further


def nodes_by_volumes(pod: Pod, around: Surroundings) -> list[tuple[str, Node]]:
    """Return a node of each group in each zone in which a volume of a pod is and no node, after the name of its pattern."""
    names = {one.persistent_volume_claim.claim_name for one in pod.spec.volumes if one.persistent_volume_claim is not None}
    claims = [around.find(PersistentVolumeClaim, pod.namespace, name) for name in names]
    held = [around.find(PersistentVolume, "", one.spec.volume_name) for one in claims if isinstance(one, PersistentVolumeClaim)]
    rules = [one.spec.node_affinity.required for one in held if isinstance(one, PersistentVolume) and one.spec.node_affinity]
    expressions = [one for rule in rules if rule for term in rule.node_selector_terms for one in term.match_expressions]
    wanted = sorted({zone for one in expressions if one.key == ZONE and one.operator == "In" for zone in one.values})
    if not wanted:
        return []
    nodes = [node for node in around.all_of(Node) if isinstance(node, Node)]
    groups = {one.nodes[0].name: one.nodes[0] for one in group_nodes(nodes) if one.nodes[0].labels.get(ZONE)}
    held_by = {node.labels.get(ZONE) for node in nodes}
    return [
        (name, replace(one, metadata=replace(one.metadata, name=f"{name}-in-{zone}", labels={**one.labels, ZONE: zone})))
        for zone in wanted if zone not in held_by for name, one in groups.items()
    ]  # fmt: skip


def _members(one: NodeType, nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the node, or the nodes of the group, that a type is like."""
    named = [node for node in nodes if node.name == one.like]
    groups = {group.name: group.nodes for group in group_nodes(nodes)}
    members = named or groups.get(one.like.removeprefix("group/"), ())
    if not members:
        known = ", ".join(groups) or "none"
        raise InputError(f"type {one.name}: no node and no node group has the name {one.like}; groups: {known}")
    return members


def _pattern(one: NodeType, nodes: Sequence[Node]) -> Node:
    if one.like:
        members = _members(one, nodes)
        return next((node for node in members if not node.spec.unschedulable), members[0])
    assert one.node is not None
    given = one.node
    if isinstance(given, str) and text_of(given) is None:
        raise InputError(f"type {one.name}: node: expected a manifest, found a text; a program names a file as a pathlib.Path")
    if isinstance(given, Mapping):
        given = {"apiVersion": "v1", "kind": "Node", **given}
        metadata = {"name": one.name, **(given.get("metadata") or {})}
        status = dict(given.get("status") or {})
        if "capacity" in status:
            status.setdefault("allocatable", status["capacity"])
        given = {**given, "metadata": metadata, "status": status}
    read = read_given([given])
    if len(read.nodes) != 1:
        raise InputError(f"type {one.name}: a type is one node; found {len(read.nodes)}")
    return read.nodes[0]

"""What-if changes of an input: what to change before a question is asked.

They are made in this order: replaced objects, removed, added and cordoned nodes, scaled workloads, single edits. All except the
edits change the input itself, so pods of a removed node are replaced and new nodes get the pods of DaemonSets, as in any other
input. Edits are made in the resulting cluster, in which the pods of workloads exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import partial, reduce
from typing import Any

import msgspec

from moorage.api.core import Node
from moorage.api.selectors import SelectorError, parse_selector
from moorage.basis.printable import close_to, one_line
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.change.change_text import describe
from moorage.laboratory.edit.changes import apply_all, target_of
from moorage.laboratory.edit.config_changes import reconfigure
from moorage.laboratory.edit.edits import parse_edit, whole_name
from moorage.laboratory.edit.object_edits import replaced
from moorage.laboratory.edit.scaling import Scaled, parse_scaled, scale
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.simulate import Options


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """``count`` empty nodes like the node ``like``."""

    like: str
    count: int = 1


def parse_added_nodes(text: str) -> AddedNodes:
    """Read ``like=NODE,count=N``; the count may be left out.

    Raises  InputError
    """
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    count = fields.get("count", "1")
    if not fields.get("like") or fields.keys() - {"like", "count"} or not re.fullmatch(r"[1-9][0-9]{0,5}", count):
        raise InputError(one_line(f"{text!r}: write like=NODE,count=N, such as like=worker-1,count=3"))
    return AddedNodes(fields["like"], int(count))


@dataclass(frozen=True, slots=True)
class Replacement:
    """Objects of a file that replace those of the input, and the path of the file."""

    path: str
    objects: ClusterInput


@dataclass(frozen=True, slots=True)
class InputChanges:
    """Changes to make before a question is asked. Nodes are selected by name, or by a label selector as for kubectl."""

    edits: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[AddedNodes, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    replacements: tuple[Replacement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.texts())

    @property
    def config_edits(self) -> tuple[str, ...]:
        """The edits that change the configuration."""
        return tuple(edit for edit in self.edits if _is_of_configuration(edit))

    @property
    def object_edits(self) -> tuple[Change | str, ...]:
        """The other edits.

        Raises  InputError
        """
        others = (edit for edit in self.edits if not _is_of_configuration(edit))
        return tuple(parse_edit(edit) if _is_atom(edit) else edit for edit in others)

    def texts(self) -> tuple[str, ...]:
        """Return the changes in words, in the order in which they are made."""
        return (
            *(f"replace by {one.path}" for one in self.replacements),
            *(f"remove nodes {one}" for one in self.removed),
            *(f"add {one.count} node{'s' if one.count > 1 else ''} like {one.like}" for one in self.added),
            *(f"cordon {one}" for one in self.cordoned),
            *(f"scale {one}" for one in self.scaled),
            *(describe(parse_edit(edit)) if _is_atom(edit) else edit for edit in self.edits),
        )

    def changed(self, given: ClusterInput) -> ClusterInput:
        """Return the input with all changes but the edits.

        Raises  InputError for a selector that selects nothing, and for nodes to copy that do not exist
        """
        for later in self.replacements:
            given = replaced(given, later.objects)
        nodes = list(given.nodes)
        for one in self.removed:
            gone = {node.name for node in selected_nodes(nodes, one, "--remove-nodes")}
            nodes = [node for node in nodes if node.name not in gone]
        if given.nodes and not nodes:
            raise InputError("--remove-nodes removes all nodes; leave at least one")
        for more in self.added:
            nodes = _with_more(nodes, more)
        for one in self.cordoned:
            cordons = [Change("node", "cordon", target_of(node)) for node in selected_nodes(nodes, one, "--cordon")]
            nodes = _nodes(apply_all(nodes, cordons))
        changed = with_fields(given, nodes=tuple(nodes))
        for resized in self.scaled:
            changed = scale(changed, resized)
        return changed

    def reconfigured(self, options: Options) -> Options:
        """Return options with the edits of the configuration.

        Raises  InputError for an edit that cannot be read
        """
        if not self.config_edits:
            return options
        changes = tuple(map(parse_edit, self.config_edits))
        return with_fields(options, reconfigure=partial(reduce, reconfigure, changes))


_ADDED = re.compile(r"add ([0-9]{1,6}) nodes? like (\S+)")


def read_changes(given: Iterable[str | Mapping[str, Any]]) -> InputChanges:
    """Read changes as agents and pages give them: ``add 2 nodes like n1``, ``cordon n1``, ``remove nodes pool=old``,
    ``scale deployment/web=5``, an edit, or a change as documents describe it.

    Raises  InputError
    """
    edits, cordoned, removed, added, scaled = list[str](), list[str](), list[str](), list[AddedNodes](), list[Scaled]()
    for one in given:
        if not isinstance(one, str):
            edits.append(msgspec.json.encode(one).decode())
        elif found := _ADDED.fullmatch(one):
            added.append(AddedNodes(found[2], int(found[1])))
        elif one.startswith("cordon "):
            cordoned.append(one.removeprefix("cordon "))
        elif one.startswith("remove nodes "):
            removed.append(one.removeprefix("remove nodes "))
        elif one.startswith("scale "):
            scaled.append(parse_scaled(one.removeprefix("scale ")))
        else:
            edits.append(one)
    return InputChanges(tuple(edits), tuple(cordoned), tuple(removed), tuple(added), tuple(scaled))


def _is_atom(edit: str) -> bool:
    """Return True for a change in the form of an explanation's document, False for an object in JSON."""
    return edit.lstrip().startswith("{") and '"verb"' in edit


def _is_of_configuration(edit: str) -> bool:
    return parse_edit(edit).owner == "config" if _is_atom(edit) else edit.lstrip().startswith("config/")


def selected_nodes(nodes: Iterable[Node], selector: str, option: str) -> list[Node]:
    """Return the node of this name, or else the nodes that a label selector matches.

    Raises  InputError if there is none
    """
    held = list(nodes)
    names = [node.name for node in held]
    whole = whole_name(selector, names)
    named = [node for node in held if node.name == whole]
    if named:
        return named
    try:
        parsed = parse_selector(selector)
    except SelectorError as error:
        raise InputError(
            one_line(f"{option} {selector}: no node has this name, and it is no label selector: {error}")
        ) from None
    found = [node for node in held if parsed.matches(node.labels)]
    if not found:
        labels = sorted({f"{key}={value}" for node in held for key, value in node.labels.items()})
        close = close_to(selector, {**{one: one for one in labels}, **{name.partition(".")[0]: name for name in names}})
        raise InputError(one_line(f"{option} {selector}: no node has this name or matches this selector{close}"))
    return found


def _with_more(nodes: list[Node], more: AddedNodes) -> list[Node]:
    """Return the nodes with copies of one of them, under the first free names."""
    taken = {node.name for node in nodes}
    free = (name for number in range(1, more.count + len(nodes) + 1) if (name := f"{more.like}-new-{number}") not in taken)
    names = [name for name, _ in zip(free, range(more.count), strict=False)]
    changes = [Change("cluster", "add-node", f"node/{name}", "like", None, f"like {more.like}") for name in names]
    return _nodes(apply_all(nodes, changes))


def _nodes(objects: Iterable[object]) -> list[Node]:
    return [obj for obj in objects if isinstance(obj, Node)]

"""Changes as users write them: ``pod/web requests.cpu=500m``, ``node/general-c2 unschedulable=false``.

An edit names an object and one field of it. A pod without a namespace is in ``default``. ``FIELD=VALUE`` sets a field and
``FIELD-`` removes it::

    pod/shop/web cpu=500m                     node/n1 unschedulable=false
    pod/web nodeSelector.disk-                node/n1 labels.disk=ssd
    pod/web tolerations=gpu=yes:NoSchedule    node/n1 taints.nvidia.com/gpu:NoSchedule-
    pod/web topologySpreadConstraints[0].maxSkew=2
    pod/web priority=1000                     node/n1 allocatable.memory=32Gi
    pod/web schedulingGates.example.com/wait- node/n9 like=n1
    pod/web evict                             config/default-scheduler/NodeAffinity disable
                                              config/default-scheduler/NodeAffinity addedAffinity-

``cpu``, ``memory`` and ``ephemeral-storage`` of a pod are short for ``requests.cpu`` and so on.
A change in the document of an explanation is an edit, too: a JSON object with ``owner``, ``verb``, ``target``, ``path`` and
``new``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.core import Pod
from moorage.api.pod_requests import amount
from moorage.basis import table_of
from moorage.basis.printable import close_to, counted, one_line, some
from moorage.errors import InputError
from moorage.framework.changes import Change, ChangeValue, Owner
from moorage.laboratory.costs import UNDONE
from moorage.simulator.owners import controller_title

#: The fields that edits set, and the kinds of workloads.
_EDITS: Final[Mapping[str, Any]] = table_of("moorage.laboratory.edit", "edits.toml")


class _Edit(NamedTuple):
    """A form of an edit: the pattern of its field, and how the value is read; ``none``: the field is removed."""

    kind: str
    field: str
    owner: Owner
    verb: str
    read: str


def _number(field: str, value: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise InputError(f"{field} must be a whole number, not {value!r}")
    return int(value)


def _amount(field: str, value: str) -> int:
    return amount(field.partition(".")[2], value)


_FORMS: Final = tuple(_Edit(*row) for row in _EDITS["fields"])
_READS: Final[Mapping[str, Callable[[str, str], ChangeValue]]] = {
    "text": lambda field, value: value,
    "number": _number,
    "amount": _amount,
    "like": lambda field, value: f"like {value}",
    "none": lambda field, value: None,
}


def parse_edit(text: str) -> Change:
    """Read one edit.

    Raises  InputError, which lists the valid forms, for any other text
    """
    if text.lstrip().startswith("{"):
        return _atom(text)
    target, _, field = text.strip().partition(" ")
    kind, _, name = target.partition("/")
    field = field.strip()
    if kind.isalpha() and kind not in {"pod", "node", "config"} and name and field:
        raise InputError(one_line(f"edit {text!r}: edits change a pod, a node, a workload or config, not a {kind}"))
    if kind not in {"pod", "node", "config"} or not name or not field:
        raise InputError(one_line(f"edit {text!r}: write 'KIND/NAME FIELD=VALUE', such as 'pod/web requests.cpu=500m'"))
    if kind == "pod" and "/" not in name:
        target = f"pod/default/{name}"
    if kind == "node" and field.startswith("unschedulable="):
        return _cordon(target, field)
    if (kind, field) == ("pod", "evict"):
        return Change("cluster", "evict", target)
    if kind == "config":
        return Change("config", "disable-plugin", target) if field == "disable" else _argument(target, field, text)
    return parse_field(kind, target, field, text)


#: Resources that may be written without ``requests.`` in edits of a pod.
_SHORT: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
#: The types of the new values of changes; those of other verbs are texts.
_NEW: Final[Mapping[str, type]] = {
    "request": int, "max-skew": int, "priority": int, "allocatable": int, "pods": int, "cordon": bool, "uncordon": bool,
    "scale": int,
}  # fmt: skip


def _atom(text: str) -> Change:
    """Read a change in the form of an explanation's document."""
    try:
        found = msgspec.json.decode(text, type=Change, strict=True)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(one_line(f"edit {text!r}: {error}")) from None
    wanted = type(found.new) if found.verb == "plugin-argument" else _NEW.get(found.verb, str)
    if found.verb not in UNDONE or not (type(found.new) is wanted or (found.new is None and wanted is str)):
        raise InputError(one_line(f"edit {text!r}: no change has this verb with this new value"))
    return found


def _argument(target: str, field: str, text: str) -> Change:
    """Read a change of a plugin's argument; a value for a list is appended to it."""
    path, equals, value = (field[:-1], "=", None) if field.endswith("-") and "=" not in field else field.partition("=")
    if not equals or not path:
        raise InputError(one_line(f"edit {text!r}: write 'disable', 'ARGUMENT=VALUE' or 'ARGUMENT-'"))
    if value in {"true", "false"}:
        return Change("config", "plugin-argument", target, path, None, value == "true")
    is_number = value is not None and re.fullmatch(r"-?[0-9]{1,18}", value)
    return Change("config", "plugin-argument", target, path, None, int(value or 0) if is_number else value)


def _cordon(target: str, field: str) -> Change:
    value = field.partition("=")[2]
    if value not in {"true", "false"}:
        raise InputError(one_line(f"{target}: unschedulable is true or false, not {value!r}"))
    return Change("node", "uncordon" if value == "false" else "cordon", target, "unschedulable", None, value == "true")


def parse_field(kind: str, target: str, field: str, text: str, also: Iterable[str] = ("evict",), what: str = "") -> Change:
    """Read the field of an edit of a pod or a node; ``text`` is the whole edit, ``also`` are more fields that it could have.

    ``what``  the kind that the user named, if it is a workload

    Raises  InputError, with the fields that there are
    """
    if kind == "pod" and field.partition("=")[0] in _SHORT:
        field = f"requests.{field}"
    removes = field.endswith("-") and ("=" not in field or field.startswith("taints."))
    name, _, value = (field[:-1], "", "") if removes else field.partition("=")
    for form in _FORMS:
        if form.kind == kind and (form.read == "none") is removes and re.fullmatch(form.field, name):
            if form.verb == "untaint":
                return Change(form.owner, form.verb, target, "taints", name.removeprefix("taints."), None)
            return Change(form.owner, form.verb, target, name, None, _READS[form.read](name, value))
    own = {"unschedulable=true|false"} if kind == "node" else {*also, *(f"{one}=AMOUNT" for one in _SHORT)}
    known = sorted({*own, *(_shown(form) for form in _FORMS if form.kind == kind)})
    begins = {re.split(r"[=.\[]", one)[0].rstrip("-"): one for one in known}
    close = close_to(re.split(r"[.\[]", name)[0], begins)
    more = "moorage help changes has all" if close else f"fields: {', '.join(known)}"
    raise InputError(one_line(f"edit {text!r}: unknown field of a {what or kind}{close}; {more}"))


#: How a value is written, by how it is read.
_VALUES: Final = {"none": "-", "number": "=N", "amount": "=AMOUNT", "like": "=NODE"}


def _shown(form: _Edit) -> str:
    field = form.field.replace(r"\..+", ".NAME").replace(r"\.[^.]+", ".NAME").replace(r"\[\d+\]\.", "[0].")
    return field.replace("\\", "") + _VALUES.get(form.read, "=VALUE")


# -- asked -------------------------------------------------------------------------------------------------------------
# Find the pods that a question is about: ``POD``, ``NAMESPACE/POD``, ``KIND/NAME``, a workload's name, or all pending pods.

#: Names and short names of kinds that have pods → the kind.
WORKLOAD_KINDS: Mapping[str, str] = {name: kind for kind, names in _EDITS["workloads"].items() for name in names}
_POD = frozenset({"pod", "pods", "po"})


def pods_asked_for(asked: str, pods: Sequence[Pod], workloads: Mapping[str, str], namespace: str = "") -> list[Pod]:
    """Return the pods that ``asked`` names; ``workloads`` maps UIDs to ``KIND/NAME``. A namespace limits the search.

    Raises  InputError if there is none, or several in different namespaces
    """
    among = [pod for pod in pods if not namespace or pod.namespace == namespace]
    first, slash, name = asked.rpartition("/")
    named = [pod for pod in among if pod.name == name and (pod.namespace == first if slash else True)]
    if slash and first.lower() in _POD:
        named += [pod for pod in among if pod.name == name and pod not in named]
    workload = f"{WORKLOAD_KINDS.get(first.lower(), first)}/{name}"  # as people name it, or the pod's own controller
    owned = [pod for pod in among if slash and workload in (workloads.get(pod.uid), controller_title(pod.metadata))]
    if named and owned:
        raise InputError(f"{asked} is both a pod and a {WORKLOAD_KINDS[first.lower()]}; give --namespace, or pod/{name}")
    found = named or owned
    if not found:  # the name of a workload alone, as reports write it
        short = [pod for pod in among if first in ("", pod.namespace)]
        found = [pod for pod in short if workloads.get(pod.uid, "").partition("/")[2] == name]
    spaces = sorted({pod.namespace for pod in found})
    if len(spaces) > 1 and "default" in spaces and not owned:
        found, spaces = [pod for pod in found if pod.namespace == "default"], ["default"]
    if len(spaces) > 1:
        raise InputError(
            f"{asked} is in {counted(len(spaces), 'namespace')} ({some(spaces)}); give NAMESPACE/POD or --namespace"
        )
    if not found:
        known = [*(pod.name for pod in among), *(pod.key for pod in among), *workloads.values()]
        where = f" of namespace {namespace}" if namespace else ""
        close = (
            close_to(asked, known) if among or not namespace else close_to(namespace, sorted({pod.namespace for pod in pods}))
        )
        if asked.lower() in {*WORKLOAD_KINDS, *_POD}:  # as kubectl takes them apart: deploy web
            close = f"; a kind and a name are written with a slash: {asked}/NAME"
        raise InputError(f"no pod or workload {asked} among {counted(len(among), 'pod')}{where}{close}")
    return found


def whole_name(name: str, known: Collection[str]) -> str:
    """Return the name of the node that is meant: answers leave out the end, from a dot on, that the names share."""
    longer = () if name in known else [one for one in known if one.startswith(f"{name}.")]
    return longer[0] if len(longer) == 1 else name


def no_such_node(name: str, known: Iterable[str]) -> str:
    """Return the message, with similar names of nodes."""
    close = close_to(name.partition(".")[0], {one.partition(".")[0]: one for one in known})
    if not close and "=" in name:  # as kubectl, names only come without an option
        close = f"; select by labels with -l {name}"
    return one_line(f"no node has the name {name!r}{close}")

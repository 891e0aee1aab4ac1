"""Changes that would lift a refusal: the ``Change`` value, and the optional plugin method that offers changes.

================================  =======================================================================================
``remedies(state, pod, node)``    changes of input objects that would lift the plugin's refusal of one node
================================  =======================================================================================

``remedies`` receives what ``why`` receives (``moorage.framework.explaining``): ``state`` is what the plugin's ``pre_filter``
returned, and None if it has no ``pre_filter``; ``pod`` is the PodInfo; ``node`` is a view of a single row, and ``node.first``
is that node. It is called only for nodes that the plugin refuses, and only for explanations.

Each offer lifts the refusal by itself; changes that help only together are one offer, a tuple. Where several terms of a
plugin refuse the node (two taints, two resources), each change names the ``term`` that it lifts, with the name that
``terms`` gives it; then one offer for each of these terms is needed. The laboratory combines the offers of all plugins, and
verifies every combination with a run of the engine: an offer that does not help costs time but never gives a wrong answer. A
numeric change takes its threshold value: the largest request that fits, the smallest skew that fits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct

from moorage.api.core import Taint, Value
from moorage.framework.explaining import Detail, ExplainingPlugin, ShortfallPlugin, TermsPlugin
from moorage.framework.points import EnqueueExtensions, FilterPlugin, Plugin, Reusable
from moorage.state.view import NodeView, PodInfo

__all__ = [
    "Change", "ChangeValue", "Detail", "ExplainingPlugin", "Owner", "RefusingPlugin", "Remedies", "RemedyingPlugin",
    "ShortfallPlugin", "TermsPlugin", "port_text", "taint_text", "term_text",
]  # fmt: skip


S_contra = TypeVar("S_contra", contravariant=True)

#: The team that can make a change: the pod's, the nodes', the cluster's operator, or the owner of the configuration.
Owner: TypeAlias = Literal["pod", "node", "cluster", "config"]
ChangeValue: TypeAlias = str | int | bool | None


class Change(Struct, frozen=True, cache_hash=True):
    """One change of one input object.

    ``owner``   who can make it
    ``verb``    the kind of change: ``uncordon``, ``label``, ``request`` …; the verbs and their costs are in
                ``moorage.laboratory.costs``
    ``target``  the object, ``kind/namespace/name`` or ``kind/name``: ``pod/default/web``, ``node/general-c2``
    ``path``    the field that changes: ``requests.cpu``, ``labels.disk``
    ``old``     its value before, None if there is none; amounts are in the units of ``NodeView``
    ``new``     its value after, None if it is removed
    ``cost``    what the change costs; 0 leaves it to the laboratory's table
    ``term``    in a plugin's answer, the term that the change lifts; "" if the plugin has only one
    """

    owner: Owner
    verb: str
    target: str
    path: str = ""
    old: ChangeValue = None
    new: ChangeValue = None
    cost: float = 0.0
    term: str = ""


#: An offer of a plugin: a change, or changes that help only together.
Remedies: TypeAlias = Change | tuple[Change, ...]


@runtime_checkable
class RemedyingPlugin(Plugin, Protocol[S_contra]):
    @abstractmethod
    def remedies(self, state: S_contra, pod: PodInfo, node: NodeView, /) -> Iterable[Remedies]: ...


class RefusingPlugin(
    FilterPlugin[S_contra], ExplainingPlugin[S_contra], RemedyingPlugin[S_contra], EnqueueExtensions, Reusable,
    Protocol[S_contra],
):  # fmt: skip
    """What most built-in plugins are: a Filter that explains its refusals, says what lifts them and what wakes the pod, and
    whose answers can be reused."""


# -- change values -----------------------------------------------------------------------------------------------------
# The texts that name terms, expressions, taints and host ports in a ``Change``, because these have no names of their own.


def term_text(term: Value) -> str:
    """Return a term or an expression as compact JSON."""
    return msgspec.json.encode(term, order="deterministic").decode()


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: ``key=value:Effect``, ``key:Effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def port_text(protocol: str, address: str, port: int) -> str:
    """Return a host port: ``8080/TCP``, ``10.0.0.1:8080/TCP``."""
    at = "" if address in {"", "0.0.0.0"} else f"{address}:"  # noqa: S104 (an address to compare, not to bind)
    return f"{at}{port}/{protocol or 'TCP'}"

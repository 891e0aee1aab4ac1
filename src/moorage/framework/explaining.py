"""How plugins explain a refusal: optional methods that run only for explanations, never while pods are scheduled.

================================  =======================================================================================
``why(state, pod, node)``         why the plugin refuses one node, in words and numbers: a ``Detail``, or None
``terms(state, pod, nodes)``      the plugin's terms that refuse nodes: pairs of a name and a mask over the view
``shortfall(state, pod, nodes)``  how far each node is from fitting, shape (rows,), on any scale; 0 if it fits
================================  =======================================================================================

``state`` is what the plugin's ``pre_filter`` returned, and None if it has no ``pre_filter``; ``pod`` is the PodInfo. ``nodes``
is the view that ``filter`` receives, and ``node`` is such a view of a single row: ``node.first`` is that node. ``why`` is
called only for nodes that the plugin refuses.

A plugin has one term for each condition that can refuse a node alone: a resource, a spread constraint, an affinity term. A
node is refused if any term refuses it, so the masks together cover exactly the rows that ``filter`` refuses. For a plugin
without ``terms``, each distinct reason counts as a term. Of nodes that are refused for equal reasons, an explanation shows the
one with the least ``shortfall``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from moorage.framework.points import Plugin
from moorage.state.view import BoolArray, NodeView, PodInfo

__all__ = ["Detail", "ExplainingPlugin", "ShortfallPlugin", "TermsPlugin", "explains", "has_shortfall", "has_terms"]

S_contra = TypeVar("S_contra", contravariant=True)


class Detail(Struct, frozen=True):
    """Why a plugin refuses one node.

    ``text``     a few words: ``cpu: needs 1, 870m free``
    ``objects``  the objects that are in the way, if they are the subject of a text that begins with "has": ``("search-0",)``
                 with the text ``has app=search``
    ``terms``    the names of the plugin's terms that refuse the node: ``("cpu",)``
    ``numbers``  the amounts in the text, in the units of ``NodeView``: ``{"cpu.needed": 1000, "cpu.free": 870}``
    """

    text: str
    terms: tuple[str, ...] = ()
    numbers: Mapping[str, int] = {}
    objects: tuple[str, ...] = ()


@runtime_checkable
class ExplainingPlugin(Plugin, Protocol[S_contra]):
    @abstractmethod
    def why(self, state: S_contra, pod: PodInfo, node: NodeView, /) -> Detail | None: ...


@runtime_checkable
class TermsPlugin(Plugin, Protocol[S_contra]):
    @abstractmethod
    def terms(self, state: S_contra, pod: PodInfo, nodes: NodeView, /) -> Iterable[tuple[str, BoolArray]]: ...


@runtime_checkable
class ShortfallPlugin(Plugin, Protocol[S_contra]):
    @abstractmethod
    def shortfall(self, state: S_contra, pod: PodInfo, nodes: NodeView, /) -> npt.NDArray[np.float64]: ...


def explains(plugin: Any) -> TypeGuard[ExplainingPlugin[Any]]:
    """Return whether a plugin has ``why``. This and the next two cost a hundredth of ``isinstance`` with the protocol."""
    return getattr(plugin, "why", None) is not None


def has_terms(plugin: Any) -> TypeGuard[TermsPlugin[Any]]:
    """Return whether a plugin has ``terms``."""
    return getattr(plugin, "terms", None) is not None


def has_shortfall(plugin: Any) -> TypeGuard[ShortfallPlugin[Any]]:
    """Return whether a plugin has ``shortfall``."""
    return getattr(plugin, "shortfall", None) is not None

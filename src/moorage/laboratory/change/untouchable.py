"""What offered changes must leave alone: pods, namespaces and nodes that someone names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from moorage.api.core import Namespace, Node, Pod
from moorage.api.meta import ObjectMeta
from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.inventory import kinds_by_name
from moorage.laboratory.surroundings import Surroundings

#: What can be left alone, in the words of an option.
_KINDS: Final = ("pods", "namespaces", "nodes")
_SELECTING: Final = ("=", "!", " in ", " in(", " notin ", " notin(")


@dataclass(frozen=True)
class Untouchable:
    """Pods, namespaces and nodes that changes leave alone, as ``KIND:NAME`` or ``KIND:LABELSELECTOR``.

    A pod is touched by a change of it or its workload, and by one that evicts, moves or preempts it.
    A node is touched by a change of its object, not by pods that come or go; a namespace by what touches what is in it.

    Raises  InputError for a text of another form
    """

    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = self._parsed

    @cached_property
    def _parsed(self) -> dict[str, tuple[frozenset[str], tuple[Selector, ...]]]:
        names: dict[str, set[str]] = {kind: set() for kind in _KINDS}
        selectors: dict[str, list[Selector]] = {kind: [] for kind in _KINDS}
        for text in self.texts:
            kind, _, what = text.partition(":")
            if kind not in _KINDS or not what:
                raise InputError(
                    f"{text!r} names nothing to leave alone; write pods:, namespaces: or nodes: and a name or a label selector,"
                    " such as pods:app=db, namespaces:payments or nodes:pool=gpu"
                )
            if any(sign in what for sign in _SELECTING):
                try:
                    selectors[kind].append(parse_selector(what))
                except SelectorError as error:
                    raise InputError(f"{text!r}: {error}") from None
            else:
                names[kind].add(what)
        return {kind: (frozenset(names[kind]), tuple(selectors[kind])) for kind in _KINDS}

    def holds_any(self, changes: Iterable[Change], around: Surroundings) -> bool:
        """Return whether one of the changes touches what is to be left alone."""
        return bool(self.texts) and any(self._holds(one.target, around) for one in changes)

    def holds_pods(self, keys: Iterable[str], around: Surroundings) -> bool:
        """Return whether one of the pods, ``namespace/name``, is to be left alone."""
        return bool(self.texts) and any(self._holds(f"pod/{key}", around) for key in keys)

    def _holds(self, target: str, around: Surroundings) -> bool:
        kind, _, rest = target.partition("/")
        known = kinds_by_name().get(kind.lower())
        if known is None or kind == "config":
            return False
        namespace, _, name = rest.rpartition("/") if known.namespaced else ("", "", rest)
        namespace = namespace or ("default" if known.namespaced else "")
        found = around.find(known.type, namespace, name)
        if known.type is Node:
            return found is not None and self._is_named("nodes", found.metadata, name)
        if known.namespaced and self._is_named("namespaces", self._namespace(namespace, around), namespace):
            return True
        if isinstance(found, Pod):
            return self._is_named("pods", found.metadata, name, f"{namespace}/{name}")
        template = getattr(getattr(found, "spec", None), "template", None)
        labels = getattr(template, "metadata", None) or ObjectMeta()
        return found is not None and self._is_named("pods", labels)

    def _namespace(self, name: str, around: Surroundings) -> ObjectMeta:
        found = around.find(Namespace, "", name)
        return ObjectMeta(name=name, labels={"kubernetes.io/metadata.name": name}) if found is None else found.metadata

    def _is_named(self, kind: str, metadata: ObjectMeta, *names: str) -> bool:
        known, selectors = self._parsed[kind]
        return not known.isdisjoint(names) or any(one.matches(metadata.labels) for one in selectors)


NOTHING: Final = Untouchable()

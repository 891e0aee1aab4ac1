"""What an author's plugin gets wrong without an error: misspelt methods, and methods and hints that cannot be called.

Python calls what it finds, so a method ``wake_on`` is no fault of the language, and a hint with one parameter fails only at an
event. Loading warns of these, and ``check_plugin`` refuses them.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, Protocol

from moorage.framework import changes, explaining, points
from moorage.framework.events import Wake
from moorage.framework.points import POINTS, Plugin
from moorage.framework.profile import Profile, declared_wakes, is_built_in


def _contract() -> Iterator[tuple[str, int | None]]:
    for module in (points, explaining, changes):
        for cls in vars(module).values():
            if not isinstance(cls, type) or Plugin not in cls.__mro__:
                continue
            for name in cls.__abstractmethods__ if isinstance(cls, ABCMeta) else ():
                member = inspect.getattr_static(cls, name)
                yield name, None if isinstance(member, property) else len(inspect.signature(member).parameters) - 1


#: What Moorage reads of a plugin → how many arguments it is called with, None for an attribute.
MEMBERS: Final[Mapping[str, int | None]] = {**dict(_contract()), "Args": None}
#: Names of kube-scheduler's framework, in lower case, for which ours is not the nearest.
_OF_GO: Final = {
    "less": "sort_key", "eventstoregister": "wakes_on", "events_to_register": "wakes_on", "normalizescore": "normalize",
    "normalize_score": "normalize", "normalise": "normalize", "queue_sort": "sort_key", "queuesort": "sort_key",
    "filter_nodes": "filter", "generateplacements": "generate_placements",
}  # fmt: skip
#: Methods whose answer is used as it is, so that neither a generator nor a coroutine makes sense.
_ANSWERS: Final = frozenset([
    "pre_enqueue", "sort_key", "pre_filter", "filter_node", "pre_score", "score", "score_node", "normalize", "normalize_over",
    "reserve", "permit", "add_pod", "remove_pod", "attach", "post_bind",
])  # fmt: skip
#: Methods that do something only beside another.
_BESIDE: Final = {
    "normalize": ("score", "score_node"), "normalize_over": ("score", "score_node"), "add_pod": ("pre_filter",),
    "remove_pod": ("pre_filter",), "normalize_placements": ("score_placement",), "unreserve": ("reserve",),
    "shortfall": ("filter", "filter_node", "pre_filter"), "terms": ("filter", "filter_node", "pre_filter"),
}  # fmt: skip
_TOGETHER: Final = (("add_pod", "remove_pod"),)


def mistakes_of(cls: Any) -> Iterator[str]:
    """Yield a line for each likely mistake in a plugin's class, or in the class of a plugin. Built-in classes have none."""
    cls = cls if isinstance(cls, type) else type(cls)
    own = _written(cls)
    for name in own:
        meant = _meant(name, own)
        if meant is not None:
            yield f"has {name}, which is never called; write {meant}"
    for name, wanted in MEMBERS.items():
        if name in own and wanted is not None:
            yield from _uncallable(name, own[name], wanted)
    for name, needed in _BESIDE.items():
        if name in own and not any(other in own for other in needed):
            yield f"has {name}, which is never called without {' or '.join(needed)}"
    for one, other in _TOGETHER:
        if (one in own) != (other in own):
            has, lacks = (one, other) if one in own else (other, one)
            yield f"has {has} and no {lacks}; what-ifs need both"


def mistaken_wakes(wakes: Iterable[object]) -> Iterator[str]:
    """Yield a line for each ``Wake`` whose functions cannot be called as the queue calls them."""
    for wake in wakes:
        if not isinstance(wake, Wake):
            continue
        if (fault := _misfit(wake.when, 3)) is not None:
            yield f"the hint for {wake.event} {fault}; it is called with 3: pod, old, new"
        if (fault := _misfit(wake.whom, 2)) is not None:
            yield f"whom for {wake.event} {fault}; it is called with 2: old, new"


def mistakes_in(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Return a line for each likely mistake in the plugins of these profiles that are not built in, sorted."""
    plugins = {name: plugin for profile in profiles for name, plugin in profile.plugins.items() if not is_built_in(plugin)}
    return tuple(
        f"plugin {name}: {line}"
        for name, plugin in sorted(plugins.items())
        for line in (*mistakes_of(plugin), *mistaken_wakes(declared_wakes(plugin) or ()))
    )


def _written(cls: type) -> dict[str, Any]:
    """Return the members that a class and its bases define, without those of Protocols, of Moorage and of Python."""
    found: dict[str, Any] = {}
    for one in reversed(cls.__mro__):
        if one is object or Protocol in one.__bases__ or one.__module__.partition(".")[0] in {"typing", "abc"}:
            continue
        found |= {name: member for name, member in vars(one).items() if not name.startswith("__")}
    return found


def _meant(name: str, own: Mapping[str, Any]) -> str | None:
    """Return the member that a public name of no meaning probably stands for; None if there is none that is absent."""
    if name.startswith("_") or name in MEMBERS or name == "name" or not _is_method(own[name]):
        return None
    bare = name.lower()
    meant = _OF_GO.get(bare)
    if meant is None:
        squeezed = {one.replace("_", ""): one for one in MEMBERS}
        near = get_close_matches(bare.replace("_", ""), squeezed, n=1, cutoff=0.87)
        meant = squeezed[near[0]] if near else None
    if meant is None or meant in own:
        return None
    alike = next((methods for methods in POINTS.values() if meant in methods), (meant,))
    return None if any(method in own for method in alike) else meant


def _is_method(member: object) -> bool:
    return callable(member) or isinstance(member, (staticmethod, classmethod, property))


def _uncallable(name: str, member: Any, wanted: int) -> Iterator[str]:
    """Yield why a method cannot be called with so many arguments, or answers what nothing reads."""
    if isinstance(member, property) or not _is_method(member):
        yield (
            f"has {name}, which is no method"
            if not isinstance(member, property)
            else f"has {name} as a property; drop @property"
        )
        return
    function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
    extra = 0 if isinstance(member, staticmethod) or not inspect.isroutine(function) else 1
    if (fault := _misfit(function, wanted, extra)) is not None:
        named = [*inspect.signature(_declared(name)).parameters][1:]
        yield f"has {name}, which {fault}; it is called with {wanted}{': ' * bool(named)}{', '.join(named)}"
    if inspect.iscoroutinefunction(function):
        yield f"has {name} as async, which is never awaited; return Call(run, stand_in) from pre_bind or bind for I/O"
    elif inspect.isgeneratorfunction(function) and name in _ANSWERS:
        yield f"has {name} with yield; return the answer"


def _declared(name: str) -> Any:
    for module in (points, explaining, changes):
        for cls in vars(module).values():
            if isinstance(cls, type) and Plugin in cls.__mro__ and name in vars(cls):
                return inspect.getattr_static(cls, name)
    raise KeyError(name)


def _misfit(call: Callable[..., Any] | None, wanted: int, extra: int = 0) -> str | None:
    """Return how a function differs from one that is called with so many arguments; None if it can be called."""
    if call is None:
        return None
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # written in C, or no function
        return None if callable(call) else f"is {call!r:.60} and no function"
    try:
        signature.bind(*range(wanted + extra))
    except TypeError:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        most = sum(one.kind in kinds for one in signature.parameters.values()) - extra
        if most == wanted:
            only = [
                one.name for one in signature.parameters.values() if one.kind is one.KEYWORD_ONLY and one.default is one.empty
            ]
            return f"needs {', '.join(only)} by name"
        return f"takes {max(most, 0)} argument{'' if most == 1 else 's'}"
    return None

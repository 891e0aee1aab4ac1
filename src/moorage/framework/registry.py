"""The registry of plugin classes: built-in and out-of-tree.

A plugin class has a ``name``. If it takes arguments, it has ``Args``, a frozen ``msgspec`` struct with their defaults and, to
check more than types, ``Args.faults(path, gates)``. The registry builds a plugin with its arguments alone; a plugin that needs
the feature gates or the running scheduler (to allow a waiting pod, for example) also has ``attach(handle)``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from moorage.api.custom_objects import CustomKind
from moorage.basis.printable import clip, is_printable
from moorage.errors import RAISED, InputError, MoorageError
from moorage.framework.events import Resource, Wake
from moorage.framework.handle import Handle, WaitingPod
from moorage.framework.points import POINTS, Plugin
from moorage.framework.profile import Profile, args_of, declared_name, declared_wakes, points_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

__all__ = [
    "ENTRY_POINT_GROUP", "Handle", "NamedKinds", "Registry", "WaitingPod", "load", "named_kinds", "unusable_names",
]  # fmt: skip


ENTRY_POINT_GROUP = "moorage.plugins"


class Registry:
    """Plugin classes by name. The names are those that configuration files use."""

    def __init__(self, classes: Iterable[Any] = (), args: Mapping[str, type[Any]] | None = None) -> None:
        """Register plugin classes. ``args``: argument types of plugins that configuration may name but that have no class."""
        self._classes: dict[str, Any] = {}
        self._points: dict[str, tuple[str, ...]] = {}
        self._args = dict(args or {})
        #: A line for each installed plugin that another of its name replaces.
        self.replaced: tuple[str, ...] = ()
        for cls in classes:
            self.add(cls)

    def add(self, cls: Any) -> None:
        """Register a plugin class.

        Raises  InputError if it has no name, implements no extension point, or the name is taken
        """
        name = declared_name(cls)
        where = f"{cls.__module__}:{cls.__qualname__}" if isinstance(cls, type) else f"?:{cls}"
        if name is None or not is_printable(name):
            raise InputError(f"plugin {where}: has no usable name; give the class a line such as name = 'MyPlugin'")
        points = points_of(cls)
        if not points:
            raise InputError(f"plugin {name} ({where}): implements no extension point; {_suggested_method(cls)}")
        if name in self._classes:
            raise InputError(f"plugin {name} ({where}): that name is taken by {self._classes[name].__module__}; choose another")
        self._classes[name] = cls
        self._points[name] = points

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def __getitem__(self, name: str) -> Any:
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def points(self) -> Mapping[str, tuple[str, ...]]:
        """Plugin name → the extension points it implements."""
        return dict(self._points)

    def args_type(self, name: str) -> type[Any] | None:
        """Return the struct of the plugin's arguments; None if it takes none or is unknown."""
        found = args_of(self._classes.get(name))
        return self._args.get(name) if found is None else found

    def copy(self) -> Registry:
        """Return a copy to which plugins can be added."""
        copied = Registry((), self._args)
        copied._classes, copied._points, copied.replaced = dict(self._classes), dict(self._points), self.replaced
        return copied

    def with_classes(self, classes: Mapping[str, Any]) -> Registry:
        """Return a copy with other classes for some of its plugins."""
        return Registry((classes.get(name, cls) for name, cls in self._classes.items()), self._args)

    def with_named(self, classes: Iterable[Any], shipped: Registry) -> Registry:
        """Return a copy with the plugins that a user names. Each replaces an installed plugin of its name, that is one which
        is not among the ``shipped``.

        Raises  InputError as ``add`` does
        """
        grown, named = self.copy(), dict[str, Any]()
        for cls in classes:
            name = declared_name(cls) or ""
            if name in grown and grown[name] is cls:
                continue
            if name in grown and name not in shipped and name not in named:
                grown.replaced += (_replaced(name, grown[name].__module__),)
                del grown._classes[name], grown._points[name]
            grown.add(cls)
            named[name] = cls
        return grown

    def build(self, name: str, args: object = None) -> Plugin:
        """Build the plugin. ``args`` is an instance of its ``Args``; None means the defaults.

        Raises  InputError if its constructor raises; a MoorageError that it raises itself, as for bad arguments, is passed on
        """
        cls = self._classes[name]
        args_type = self.args_type(name)
        try:
            plugin: Plugin = cls() if args_type is None else cls(args_type() if args is None else args)
        except MoorageError:
            raise
        except RAISED as error:
            given = "without Args it is given none" if args_type is None else "it is given its Args and no more"
            raise InputError(f"plugin {name} cannot be built: {type(error).__name__}: {clip(str(error))}; {given}") from error
        return plugin

    def with_installed(self, named_in: str | None = None, without: Set[str] = frozenset()) -> Registry:
        """Return a copy of this registry with the plugins of installed distributions (entry points ``moorage.plugins``).

        With ``named_in``, the text of a configuration, import only those whose entry point occurs in it, so that a broken
        plugin that is not enabled causes no error. Entry points of a name in ``without`` are left out, and are in ``replaced``.

        Raises  InputError if one of them cannot be imported or cannot be registered
        """
        grown = self.copy()
        if named_in == "":
            return grown
        for found in _installed_points():
            if found.name in without:
                grown.replaced += (_replaced(found.name, found.value),)
            elif named_in is None or found.name in named_in:
                grown.add(_installed(found))
        return grown


def _installed_points() -> tuple[EntryPoint, ...]:
    """Return the entry points for plugins, by name. They are found again when what can be imported changes."""
    from importlib import metadata  # slow to import, and rarely needed

    return _found_points(metadata.entry_points, tuple(sys.path), tuple(map(_changed_at, sys.path)))


@lru_cache(maxsize=1)
def _found_points(
    entry_points: Callable[..., Iterable[EntryPoint]], places: tuple[str, ...], changed: tuple[int, ...]
) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda e: e.name))


def _changed_at(place: str) -> int:
    try:
        return Path(place or ".").stat().st_mtime_ns
    except OSError:
        return 0


def _replaced(name: str, installed: str) -> str:
    return f"plugin {name} of --plugins replaces the installed one ({installed})"


def _installed(found: EntryPoint) -> Any:
    try:
        return found.load()
    except RAISED as error:
        where = f"{found.dist.name}: " if found.dist else ""
        message = f"plugin {found.name} ({where}{found.value}) cannot be imported: {type(error).__name__}: {clip(str(error))}"
        raise InputError(message) from error


def load(reference: str, option: str = "--plugins") -> Any:
    """Import a plugin class from ``module:object``, or from ``path/to/file.py:object``; ``option`` is what errors name.

    Raises  InputError if the module, the file or the object does not exist, or importing it fails
    """
    named, colon, attribute = reference.rpartition(":")
    if not colon or not named or not attribute:
        example = "my_rules.gpu:SpreadGpus or ./my_rules/gpu.py:SpreadGpus"
        raise InputError(f"{option} {reference}: write it as module:Class or file.py:Class, for example {example}")
    module_name = _module_of_file(reference, Path(named), option) if named.endswith(".py") else named
    try:
        module = importlib.import_module(module_name)
    except RAISED as error:
        why = f"{type(error).__name__}: {clip(str(error))}{_raised_at(error)}{_as_module(module_name, attribute)}"
        raise InputError(f"{option} {reference}: cannot import {module_name}: {why}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        near = _classes_in(module, attribute)
        raise InputError(f"{option} {reference}: module {module_name} has no {attribute}{near}") from None


def _module_of_file(reference: str, file: Path, option: str) -> str:
    """Make a file importable and return its module's name.

    Its folder joins the module path, which spawned processes inherit: they find a pickled class of the file by its name.

    Raises  InputError if there is no such file, or if importing its name would find another module
    """
    if not file.is_file():
        near = get_close_matches(file.name, [one.name for one in file.parent.glob("*.py")], n=1)
        hint = f"; did you mean {file.with_name(near[0])}?" if near else ""
        raise InputError(f"{option} {reference}: there is no file {file}{hint}")
    if "." in file.stem:
        raise InputError(f"{option} {reference}: a module's name has no dot; rename the file")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    found = _origin(file.stem)
    if found is None or not Path(found).exists() or not file.samefile(found):
        raise InputError(
            f"{option} {reference}: the name {file.stem} is taken by another module ({found or 'built-in'}); rename the file"
        )
    return file.stem


def _origin(module_name: str) -> str | None:
    """Return the file that ``import name`` runs, or ran if the module is loaded."""
    loaded = sys.modules.get(module_name)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    spec = importlib.util.find_spec(module_name)
    return spec.origin if spec is not None else None


# -- suggestions for error messages -------------------------------------------------------------------------------------


def _suggested_method(cls: Any) -> str:
    """Return a suggestion for a class without an extension point: one of its methods may be mistyped."""
    known = [method for methods in POINTS.values() for method in methods]
    for given in vars(cls) if isinstance(cls, type) else ():
        near = get_close_matches(given.lower(), known, n=1, cutoff=0.8)
        if near:
            return f"for {given} write {near[0]}"
    return "see moorage.framework.points"


def _raised_at(error: BaseException) -> str:
    """Return the file and line that raised while the module was imported."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    return f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _as_module(name: str, attribute: str) -> str:
    """Return a suggestion for a user who named a file instead of a module."""
    parts = [part for part in PurePath(name.removesuffix(".py")).parts if part not in {"/", ".."}]
    return "" if name == ".".join(parts) else f"; name a module as import does: {'.'.join(parts)}:{attribute}"


def _classes_in(module: ModuleType, wanted: str) -> str:
    """Return a suggestion: the class with the nearest name, or all classes of the module."""
    names = [name for name, one in vars(module).items() if isinstance(one, type) and one.__module__ == module.__name__]
    near = get_close_matches(wanted, names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there is {', '.join(names)}" if names else ""


# -- custom kinds ------------------------------------------------------------------------------------------------------
# Collects the custom kinds that plugins name in ``wakes_on``; the caller has to watch these kinds too.

_BUILT_IN = frozenset(map(str, Resource))


class NamedKinds(NamedTuple):
    """Custom kinds that plugins name, sorted by name. ``unusable`` are names of no valid form, whose events wake no pod."""

    kinds: tuple[CustomKind, ...] = ()
    unusable: tuple[str, ...] = ()


def named_kinds(profiles: Iterable[Profile]) -> NamedKinds:
    """Return the kinds that plugins name in addition to the built-in ones, including plugins that only score."""
    plugins = [plugin for profile in profiles for plugin in profile.plugins.values()]
    return _of(wake for plugin in plugins for wake in declared_wakes(plugin) or ())


def unusable_names(wakes: Iterable[Wake]) -> tuple[str, ...]:
    """Return the resources of ``wakes`` that are neither built in nor of the form ``plural.version.group``, sorted."""
    return _of(wakes).unusable


def _of(wakes: Iterable[Wake]) -> NamedKinds:
    names = {str(wake.event.resource) for wake in wakes}
    parsed = {name: CustomKind.parse(name) for name in sorted(names - _BUILT_IN)}
    kinds = tuple(kind for kind in parsed.values() if kind is not None)
    return NamedKinds(kinds, tuple(name for name, kind in parsed.items() if kind is None))

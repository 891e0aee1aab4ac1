"""Copies of the whole state of a simulation. They share immutable values: API objects, pods' derived data, decisions.

A copy visits once every object that can be reached from another one. Containers, arrays and objects of Moorage's own classes
are copied. Values that are the same in every simulation (functions, enums, constants of modules) are shared. Anything else is
refused: objects of third-party plugins may hold state that cannot be copied.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from enum import Enum
from functools import partial
from itertools import chain
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any, Final
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from moorage.core.cycle.cycle import Cycle

#: Objects of these modules never change after their creation, except for cached data that is derived from them.
_CONSTANT: Final = (
    "moorage.api.", "moorage.api.releases.", "moorage.core.cycle.decision", "moorage.core.engine.facts",
    "moorage.framework.events",
    "moorage.api.feature_gates", "moorage.state.affinity_terms", "moorage.state.pod_info", "moorage.api.pod_requests",
    "moorage.state.pod_volumes", "moorage.state.affinity_terms",
)  # fmt: skip
_ATOMS: Final = (
    NoneType, bool, int, float, complex, str, bytes, range, slice, type, Enum, np.dtype, np.generic, ModuleType, CodeType,
    GenericAlias, msgspec.msgpack.Encoder, msgspec.json.Encoder,
)  # fmt: skip
#: Modules of the standard library with values that never change.
_STANDARD: Final = frozenset({"datetime", "decimal", "fractions", "ipaddress", "operator", "re", "typing"})
#: The depth to which nested tuples are inspected in one step.
_DEPTH: Final = 4
#: Caches of a cycle, which are not copied and are computed again when they are needed.
DROPPED: Final = frozenset({"_paths", "_failures"})


class _RefusedError(Exception):
    """Something cannot be copied."""


def is_shared(kind: type) -> bool:
    """Return whether all copies share the objects of a class."""
    module = kind.__module__
    return kind is object or issubclass(kind, _ATOMS) or module in _STANDARD or module.startswith(_CONSTANT)


class StateCopy:
    """One copy. ``instead``: objects of the original and the objects that replace them in the copy."""

    def __init__(self, instead: Iterable[tuple[Any, Any]]) -> None:
        #: By the id of an original: the original, which keeps its id in use, and its copy.
        self._known: dict[int, tuple[Any, Any]] = {id(old): (old, new) for old, new in instead}
        self._constants = _CONSTANTS.ids()
        self._shared: set[type] = set()
        self._ways: dict[type, Callable[[Any], Any]] = {}
        #: Calls that fill copies, which are created empty so that they can refer to each other.
        self._to_fill: list[Callable[[], None]] = []

    def of(self, value: Any) -> Any:
        """Return the copy of a value; None if something in it cannot be copied."""
        try:
            made = self._one(value)
            while self._to_fill:
                self._to_fill.pop()()
        except _RefusedError:
            return None
        return made

    def _one(self, value: Any) -> Any:
        kind = type(value)
        if kind in self._shared:
            return value
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        way = self._ways.get(kind)
        if way is None:
            if is_shared(kind):
                self._shared.add(kind)
                return value
            way = self._ways[kind] = self._way(kind)
        return value if id(value) in self._constants else way(value)

    def _keep(self, value: Any, made: Any, fill: Callable[[], None] | None = None) -> Any:
        self._known[id(value)] = value, made
        if fill is not None:
            self._to_fill.append(fill)
        return made

    def _way(self, kind: type) -> Callable[[Any], Any]:
        """Return how objects of a class are copied.

        Raises  _RefusedError
        """
        known = self._known_ways().get(kind)
        if known is not None:
            return known
        if not kind.__module__.startswith("moorage.") or issubclass(kind, (list, set, frozenset)):
            raise _RefusedError
        if issubclass(kind, msgspec.Struct):
            return self._frozen if kind.__struct_config__.frozen else self._struct
        return self._tuple if issubclass(kind, tuple) else self._object

    def _known_ways(self) -> Mapping[type, Callable[[Any], Any]]:
        return {
            dict: self._dict, Counter: self._dict, list: self._list, deque: self._list, set: self._set, tuple: self._tuple,
            frozenset: self._frozenset, array: self._flat, bytearray: self._flat, MappingProxyType: self._proxy,
            np.ndarray: self._array, memoryview: self._memory, MethodType: self._method, FunctionType: self._function,
            BuiltinFunctionType: self._builtin, CellType: self._cell, partial: self._partial, WeakSet: self._weak_set,
            WeakKeyDictionary: self._weak_keys, ReferenceType: self._weak_reference,
        }  # fmt: skip

    # -- containers -------------------------------------------------------------------------------------------------------

    def _is_flat(self, values: Collection[Any]) -> bool:
        """Return whether values can be shared, or are tuples, up to ``_DEPTH`` levels deep, of values that can."""
        kinds = set(map(type, values))
        for _ in range(_DEPTH):
            if tuple not in kinds:
                break
            values = list(chain.from_iterable([one for one in values if type(one) is tuple]))
            kinds = (kinds - {tuple}) | set(map(type, values))
        if kinds <= self._shared:
            return True
        self._shared.update(filter(is_shared, kinds))
        return kinds <= self._shared

    def _flat(self, value: Any) -> Any:
        return self._keep(value, copy(value))

    def _dict(self, value: dict[Any, Any]) -> Any:
        if self._is_flat(value) and self._is_flat(value.values()):
            return self._flat(value)
        made = type(value)()
        return self._keep(value, made, lambda: dict.update(made, [(self._one(k), self._one(v)) for k, v in value.items()]))

    def _list(self, value: list[Any] | deque[Any]) -> Any:
        if self._is_flat(value):
            return self._flat(value)
        made: Any = deque(maxlen=value.maxlen) if isinstance(value, deque) else []
        return self._keep(value, made, lambda: made.extend([self._one(one) for one in value]))

    def _set(self, value: set[Any]) -> Any:
        if self._is_flat(value):
            return self._flat(value)
        made: set[Any] = set()
        return self._keep(value, made, lambda: made.update([self._one(one) for one in value]))

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        items = [self._one(one) for one in value]
        same = all(map(_is_same, items, value))
        return self._keep(value, value if same else tuple.__new__(type(value), items))

    def _frozenset(self, value: frozenset[Any]) -> Any:
        return self._keep(value, value if self._is_flat(value) else frozenset([self._one(one) for one in value]))

    def _proxy(self, value: MappingProxyType[Any, Any]) -> Any:
        inner = self._one(value | {})  # the mapping behind a proxy cannot be reached
        return self._keep(value, MappingProxyType(inner))

    def _weak_set(self, value: WeakSet[Any]) -> Any:
        made: WeakSet[Any] = WeakSet()
        return self._keep(value, made, lambda: made.update([self._one(one) for one in list(value)]))

    def _weak_keys(self, value: WeakKeyDictionary[Any, Any]) -> Any:
        return self._keep(value, WeakKeyDictionary())  # a cache whose keys are objects

    def _weak_reference(self, value: ReferenceType[Any]) -> Any:
        target = value()
        return self._keep(value, value if target is None else ref(self._one(target)))

    # -- arrays -----------------------------------------------------------------------------------------------------------

    def _array(self, value: Any) -> Any:
        if value.dtype.hasobject:
            raise _RefusedError
        base = value.base
        if base is None:
            made = value.copy(order="K")
        elif type(base) is np.ndarray and base.flags.forc:
            whole, at = self._one(base), _address(value) - _address(base)
            made = np.ndarray(value.shape, value.dtype, whole, at, value.strides)
        else:
            raise _RefusedError
        made.flags.writeable = value.flags.writeable
        return self._keep(value, made)

    def _memory(self, value: memoryview) -> Any:
        made = self._one(value.obj).data if isinstance(value.obj, np.ndarray) else None
        if made is None or (made.format, made.nbytes, made.shape) != (value.format, value.nbytes, value.shape):
            raise _RefusedError
        return self._keep(value, made)

    # -- functions --------------------------------------------------------------------------------------------------------

    def _method(self, value: MethodType) -> Any:
        return self._keep(value, MethodType(value.__func__, self._one(value.__self__)))

    def _builtin(self, value: Any) -> Any:
        owner = value.__self__
        return value if owner is None or isinstance(owner, ModuleType | type) else getattr(self._one(owner), value.__name__)

    def _function(self, value: FunctionType) -> Any:
        defaults = self._one(value.__defaults__)
        if not value.__closure__ and defaults is value.__defaults__:
            return value
        if not value.__module__.startswith("moorage."):
            raise _RefusedError
        cells = tuple([self._one(cell) for cell in value.__closure__ or ()])
        made = FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
        made.__kwdefaults__ = value.__kwdefaults__
        return self._keep(value, made)

    def _cell(self, value: CellType) -> Any:
        made = CellType()
        return self._keep(value, made, lambda: setattr(made, "cell_contents", self._one(value.cell_contents)))

    def _partial(self, value: partial[Any]) -> Any:
        made = partial(
            self._one(value.func), *map(self._one, value.args), **{k: self._one(v) for k, v in value.keywords.items()}
        )
        return self._keep(value, made)

    # -- objects ----------------------------------------------------------------------------------------------------------

    def _object(self, value: Any) -> Any:
        kind: Any = type(value)
        made = dict.__new__(kind) if issubclass(kind, dict) else object.__new__(kind)
        if kind.__hash__ is None or kind.__hash__ is object.__hash__:
            return self._keep(value, made, lambda: self._fill(value, made))
        self._keep(value, made)
        self._fill(value, made)  # at once: it may be a key, and its hash depends on what is in it
        return made

    def _fill(self, value: Any, made: Any) -> None:
        if isinstance(value, dict):
            dict.update(made, [(self._one(key), self._one(one)) for key, one in value.items()])
        for name in _slots_of(type(value)):
            if hasattr(value, name):
                object.__setattr__(made, name, self._one(getattr(value, name)))
        held = getattr(value, "__dict__", None)
        if held is not None:
            dropped = DROPPED if isinstance(value, Cycle) else frozenset[str]()
            made.__dict__.update({name: {} if name in dropped else self._one(one) for name, one in held.items()})

    def _struct(self, value: msgspec.Struct) -> Any:
        made = copy(value)
        return self._keep(value, made, lambda: self._fill_struct(value, made))

    def _fill_struct(self, value: msgspec.Struct, made: msgspec.Struct) -> None:
        for name in value.__struct_fields__:
            setattr(made, name, self._one(getattr(value, name)))

    def _frozen(self, value: msgspec.Struct) -> Any:
        fields = [getattr(value, name) for name in value.__struct_fields__]
        copies = [self._one(one) for one in fields]
        if all(map(_is_same, copies, fields)):
            return self._keep(value, value)
        made = copy(value)
        for name, one in zip(value.__struct_fields__, copies, strict=True):
            force_setattr(made, name, one)
        return self._keep(value, made)


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _address(values: Any) -> int:
    address: int = values.__array_interface__["data"][0]
    return address


def _slots_of(kind: type) -> list[str]:
    slots = (vars(one).get("__slots__", ()) for one in kind.__mro__)
    names = chain.from_iterable((one,) if isinstance(one, str) else one for one in slots)
    return [name for name in names if name not in {"__dict__", "__weakref__"}]


class _Constants:
    """The values of Moorage's modules and classes, which all simulations share. They are held, so that they keep their ids."""

    def __init__(self) -> None:
        self._modules = 0
        self._values: list[Any] = []
        self._ids: frozenset[int] = frozenset()

    def ids(self) -> frozenset[int]:
        """Return the ids of all values of the modules that are loaded."""
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            modules = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("moorage.")]
            values = list(chain.from_iterable(one.values() for one in modules))
            classes = {one for one in values if isinstance(one, type) and one.__module__.startswith("moorage.")}
            self._values = [*values, *chain.from_iterable(vars(one).values() for one in classes)]
            self._ids = frozenset(map(id, self._values))
        return self._ids


_CONSTANTS: Final = _Constants()

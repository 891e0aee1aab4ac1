"""Estimate the maximum cost of an expression before it runs. kube-apiserver refuses expressions by this estimate.

Literals have a known size, variables a declared one. A loop costs as much as its body, times the maximum length of its range.
The estimate equals cel-go's exactly, even if that is too low or too high, because it decides which definitions are valid.

Source  cel-go: checker/cost.go
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from moorage.api.cel import call_estimates
from moorage.api.cel.checker import NodeTypes
from moorage.api.cel.macros import ACCUMULATOR
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, ListExpr, Literal, MapExpr, Select
from moorage.api.cel.types import Type

_NEW_LIST: Final = 10
_NEW_MAP: Final = 30
_SCALARS: Final = frozenset(["bool", "double", "int", "uint"])
_TIMES: Final = frozenset(["timestamp", "duration"])
#: The operators for which the syntax tree has no overloads.
_BARE: Final = frozenset(["_&&_", "_||_", "_?._"])
_JOINED: Final = frozenset(["string, string", "bytes, bytes", "list<A>, list<A>"])
_NONE_SO_FAR: Final = call_estimates.SizeRange(call_estimates.UNBOUNDED, 0)


def estimate_cost(expression: Expr, types: NodeTypes, lookup: call_estimates.SizeLookup) -> int:
    """Return the estimated maximum cost of a checked expression, in CEL's units. ``lookup`` returns the sizes of variables."""
    return _Estimator(types, lookup).cost(expression)


class _EntrySize(NamedTuple):
    """The sizes of the keys (of a list: the indexes) and of the values in a map or list."""

    kind: str
    key: call_estimates.SizeRange
    value: call_estimates.SizeRange

    def union(self, other: _EntrySize) -> _EntrySize:
        return _EntrySize(self.kind, self.key.union(other.key), self.value.union(other.value))


class _Local(NamedTuple):
    """A variable of a comprehension."""

    path: call_estimates.FieldPath | None
    size: call_estimates.SizeRange | None
    entries: _EntrySize | None = None


class _Estimator:
    def __init__(self, types: NodeTypes, lookup: call_estimates.SizeLookup) -> None:
        self._types = types
        self._lookup = lookup
        self._paths: dict[Expr, call_estimates.FieldPath] = {}
        self._sizes: dict[Expr, call_estimates.SizeRange] = {}
        self._entries: dict[Expr, _EntrySize] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Expr) -> int:
        """Return the cost of a node, and store its path and its size if they are known."""
        match node:
            case Ident():
                local = self._local(node)
                path = call_estimates.FieldPath.of(_name(node)) if local is None else local.path
                if path is not None:
                    self._paths[node] = path
                return 1
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Fold():
                return self._bind(node) if _is_bind(node) else self._fold(node)
            case _:
                return 0

    # -- sizes -----------------------------------------------------------------------------------------------------------

    def _local(self, node: Expr) -> _Local | None:
        stack = self._locals.get(_name(node)) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def _path(self, node: Expr) -> call_estimates.FieldPath | None:
        local = self._local(node)
        return self._paths.get(node) if local is None else local.path

    def _size(self, node: Expr) -> call_estimates.SizeRange | None:
        known = self._sizes.get(node) or _shown_size(node)
        if known is not None:
            return known
        path = self._path(node)
        found = None if path is None else self._lookup(path.names)
        if found is not None:
            self._sizes[node] = found
            return found
        if _is_scalar(self._types.of(node)):
            return call_estimates.SizeRange.exactly(1)
        local = self._local(node)
        return None if local is None else local.size

    def _entry_size(self, node: Expr) -> _EntrySize | None:
        local = self._local(node)
        return self._entries.get(node) or (None if local is None else local.entries)

    def _operand(self, node: Expr) -> call_estimates.Operand:
        path = self._path(node)
        if path is not None and path.names[0] == ACCUMULATOR:
            path = None
        return call_estimates.Operand(self._types.of(node), path, self._size(node), node)

    # -- fields, lists and maps ------------------------------------------------------------------------------------------

    def _select(self, node: Select) -> int:
        cost = self.cost(node.operand)
        if node.test:
            return cost
        self._paths[node] = _extended(self._path(node.operand), node.field)
        of = self._types.of(node.operand)
        return call_estimates.total(cost, 1) if of.kind in {"map", "struct"} and of.name not in _TIMES else cost

    def _list(self, node: ListExpr) -> int:
        cost, size = 0, _NONE_SO_FAR if node.elements else call_estimates.SizeRange(0, 0)
        for element in node.elements:
            cost = call_estimates.total(cost, self.cost(element))
            size = size.union(self._size(element) or call_estimates.UNKNOWN)
        self._entries[node] = _EntrySize("list", call_estimates.SizeRange.exactly(1), size)
        return call_estimates.total(cost, _NEW_LIST)

    def _map(self, node: MapExpr) -> int:
        keys = values = _NONE_SO_FAR if node.entries else call_estimates.SizeRange(0, 0)
        cost = 0
        for entry in node.entries:
            cost = call_estimates.total(cost, self.cost(entry.key), self.cost(entry.value))
            keys = keys.union(self._size(entry.key) or call_estimates.UNKNOWN)
            values = values.union(self._size(entry.value) or call_estimates.UNKNOWN)
        self._entries[node] = _EntrySize("map", keys, values)
        return call_estimates.total(cost, _NEW_MAP)

    # -- comprehensions --------------------------------------------------------------------------------------------------

    @contextmanager
    def _bound(self, name: str, local: _Local) -> Iterator[None]:
        stack = self._locals.setdefault(name, [])
        stack.append(local)
        yield
        stack.pop()

    def _bind(self, node: Fold) -> int:
        cost = call_estimates.total(self.cost(node.range), self.cost(node.start))
        with self._bound(node.accumulator, self._of_start(node)):
            cost = call_estimates.total(cost, self.cost(node.result))
        self._remember(node, self._size(node.result), self._entry_size(node.result))
        return cost

    def _of_start(self, node: Fold) -> _Local:
        path, entries = self._path(node.start), self._entry_size(node.start)
        return _Local(path, self._size(node.start), entries)

    def _fold(self, node: Fold) -> int:
        cost = call_estimates.total(self.cost(node.range), self.cost(node.start))
        with self._bound(node.accumulator, self._of_start(node)):
            step = self._step_cost(node)
            cost = call_estimates.total(cost, self.cost(node.result))
        count = self._size(node.range) or call_estimates.UNKNOWN
        if isinstance(node.start, Literal):
            self._remember(node, self._size(node.start), None)
        elif isinstance(node.start, (ListExpr, MapExpr)):
            self._remember(node, count, self._entry_size(node.step))
        return call_estimates.total(cost, call_estimates.product(count.most, step))

    def _step_cost(self, node: Fold) -> int:
        first, *second = self._variables(node)
        with self._bound(node.variables[0], first):
            if not second:
                return call_estimates.total(self.cost(node.condition), self.cost(node.step))
            with self._bound(node.variables[1], second[0]):
                return call_estimates.total(self.cost(node.condition), self.cost(node.step))

    def _variables(self, node: Fold) -> Iterator[_Local]:
        entries, path = self._entry_size(node.range), self._path(node.range)
        is_list = (entries.kind if entries else self._types.of(node.range).kind) == "list"
        key, value = (entries.key, entries.value) if entries else (None, None)
        if len(node.variables) == 1:
            yield (
                _Local(_extended(path, call_estimates.ITEMS), value)
                if is_list
                else _Local(_extended(path, call_estimates.KEYS), key)
            )
            return
        yield _Local(_extended(path, "@indices" if is_list else call_estimates.KEYS), key)
        yield _Local(_extended(path, call_estimates.ITEMS if is_list else call_estimates.VALUES), value)

    def _remember(self, node: Expr, size: call_estimates.SizeRange | None, entries: _EntrySize | None) -> None:
        if size is not None:
            self._sizes[node] = size
        if entries is not None:
            self._entries[node] = entries

    # -- calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: CallNode) -> int:
        if node.function == "dyn" and node.target is None:
            cost = call_estimates.total(self.cost(node.args[0]), 1)
            self._remember(node, self._size(node.args[0]), self._entry_size(node.args[0]))
            return cost
        costs, args = [], []
        for arg in node.args:
            costs.append(self.cost(arg))
            args.append(self._operand(arg))
        overloads = (node.function,) if node.function in _BARE else node.overloads
        if not overloads:
            return 0
        cost = 0 if node.target is None else self.cost(node.target)
        target = None if node.target is None else self._operand(node.target)
        calls = [call_estimates.EstimatedCall(node.function, one, target, tuple(args), self._lookup) for one in overloads]
        return call_estimates.total(cost, self._dearest(node, calls, costs))

    def _dearest(self, node: CallNode, calls: list[call_estimates.EstimatedCall], costs: list[int]) -> int:
        """Return the cost of the most expensive overload that fits."""
        dearest, size = 0, None
        for call in calls:
            found = call_estimates.estimate_call(call)
            if found is None and call.function == "_?_:_":
                dearest, found = max(dearest, call_estimates.total(costs[0], max(costs[1:]))), self._conditional(node, call)
            else:
                found = found or self._operator(node, call)
                dearest = max(dearest, call_estimates.total(found.cost, *costs))
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            step = _INDEXED.get(call.overload)
            if step is not None:
                entries = self._entry_size(node.args[0])
                size = None if entries is None else entries.value
                self._paths[node] = _extended(self._path(node.args[0]), step)
            size = size or self._size(node)
        self._remember(node, size, None)
        return dearest

    def _conditional(self, node: CallNode, call: call_estimates.EstimatedCall) -> call_estimates.CallEstimate:
        entries = [self._entry_size(one) for one in node.args[1:]]
        if entries[0] is not None and entries[1] is not None:
            self._entries[node] = entries[0].union(entries[1])
        return call_estimates.CallEstimate(
            0, (call.args[1].size or call_estimates.UNKNOWN).union(call.args[2].size or call_estimates.UNKNOWN)
        )

    def _operator(self, node: CallNode, call: call_estimates.EstimatedCall) -> call_estimates.CallEstimate:
        """Return the estimate for a call of an operator or a built-in function of CEL."""
        if call.function == "_+_" and call.given in _JOINED:
            return self._joined(node, call)
        return call_estimates.estimate_operator(call)

    def _joined(self, node: CallNode, call: call_estimates.EstimatedCall) -> call_estimates.CallEstimate:
        entries = [self._entry_size(one) for one in node.args]
        if entries[0] is not None and entries[1] is not None:
            self._entries[node] = entries[0].union(entries[1])
        size = (call.args[0].size or call_estimates.UNKNOWN).plus(call.args[1].size or call_estimates.UNKNOWN)
        return call_estimates.CallEstimate(
            1 if call.given.startswith("list") else call_estimates.scaled(size.most, call_estimates.TRAVERSAL), size
        )


#: Overload of the operator ``[]`` → the name that it adds to the path of its first operand.
_INDEXED: Final = {"_[_]: list<A>, int -> A": call_estimates.ITEMS, "_[_]: map<A, B>, A -> B": call_estimates.VALUES}


def _name(node: Ident) -> str:
    return node.name.removeprefix(".")


def _is_bind(node: Fold) -> bool:
    """Return whether a fold only binds a value to a name, without a loop."""
    is_never = isinstance(node.condition, Literal) and node.condition.value is False
    return is_never and isinstance(node.range, ListExpr) and not node.range.elements


def _extended(path: call_estimates.FieldPath | None, name: str) -> call_estimates.FieldPath:
    return call_estimates.FieldPath.of(name) if path is None else path.plus(name)


def _shown_size(node: Expr) -> call_estimates.SizeRange | None:
    """Return the size of a literal, None for everything else."""
    match node:
        case Literal():
            return call_estimates.SizeRange.exactly(len(node.value) if isinstance(node.value, (str, bytes)) else 1)
        case ListExpr():
            return call_estimates.SizeRange.exactly(len(node.elements))
        case MapExpr():
            return call_estimates.SizeRange.exactly(len(node.entries))
        case _:
            return None


def _is_scalar(of: Type) -> bool:
    if of.name == "optional_type":
        return _is_scalar(of.params[0])
    return of.kind in _SCALARS or of.name in _TIMES

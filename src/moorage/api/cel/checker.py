"""The type checker: check that all names are declared and that operands have the types that functions accept.

It returns the types of the expression and of its parts and all faults, and records in each call the overloads that accept its
operands.

Source  cel-go: checker/checker.go
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.cel import types
from moorage.api.cel.bounds import SourceError
from moorage.api.cel.declarations import Function, Functions, Overload
from moorage.api.cel.parser import RESERVED
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, ListExpr, Literal, MapExpr, Message, Select
from moorage.api.cel.values import UInt, Value

#: Struct types: name → field → type.
Fields = Mapping[str, Mapping[str, types.Type]]

_LOGICAL = frozenset(["_&&_", "_||_"])
#: The first name of types with any fields: the parts of a configuration that a policy applies.
DYNAMIC = "Object"


def check(
    expression: Expr, variables: Mapping[str, types.Type], functions: Functions, fields: Fields
) -> tuple[NodeTypes, list[SourceError]]:
    """Return the types in an expression and its faults, in no particular order."""
    checker = _Checker(variables, functions, fields)
    checker.check(expression)
    return checker.types, checker.problems


class NodeTypes:
    """The types of the nodes of an expression."""

    def __init__(self) -> None:
        self.bindings = types.TypeBindings()
        self._found: dict[Expr, types.Type] = {}

    def add(self, node: Expr, found: types.Type) -> types.Type:
        self._found[node] = found
        return found

    def of(self, node: Expr) -> types.Type:
        """Return the type of a node; DYN where any type fits."""
        return self.bindings.substitute(self._found.get(node, types.DYN), to_dyn=True)


class _Checker:
    def __init__(self, variables: Mapping[str, types.Type], functions: Functions, fields: Fields) -> None:
        self.types = NodeTypes()
        self.bindings = self.types.bindings
        self.problems: list[SourceError] = []
        self._scopes: list[Mapping[str, types.Type]] = [variables]
        self._functions = functions
        self._fields = fields

    def check(self, node: Expr) -> types.Type:
        """Return the type of a node; ERROR after a fault."""
        return self.types.add(node, self._type_of(node))

    def _type_of(self, node: Expr) -> types.Type:
        match node:
            case Literal():
                return _type_of_value(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Fold():
                return self._fold(node)
            case Message():
                self._undeclared(node.at, node.name)
                return types.ERROR

    def _problem(self, at: int, text: str) -> None:
        self.problems.append(SourceError(at, text))

    def _undeclared(self, at: int, name: str) -> None:
        self._problem(at, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, at: int, expected: types.Type, found: types.Type) -> None:
        self._problem(at, f"expected type '{expected}' but found '{found}'")

    # -- names ------------------------------------------------------------------------------------------------------------

    def _ident(self, node: Ident) -> types.Type:
        name = node.name.removeprefix(".")
        for scope in reversed(self._scopes if name == node.name else self._scopes[:1]):
            if name in scope:
                return scope[name]
        self._undeclared(node.at, node.name)
        return types.ERROR

    def _select(self, node: Select) -> types.Type:
        found, node.field = self._field(node.at, node.operand, node.field, optional=False)
        return types.BOOL if node.test else self.bindings.substitute(found)

    def _field(self, at: int, operand: Expr, field: str, *, optional: bool) -> tuple[types.Type, str]:
        """Return the type of a field, and its name in the value: a struct has ``namespace`` as ``__namespace__``."""
        held, was_optional = types.unwrap_optional(self.bindings.substitute(self.check(operand)))
        if held.kind == "map":
            found = held.params[1]
        elif held.kind == "struct":
            name, fields = field, self._fields.get(held.name, {})
            if field not in fields and field in RESERVED:
                field = f"__{field}__"
            found = fields.get(field, types.ERROR)
            if held.name.partition(".")[0] == DYNAMIC:
                field, found = name, types.DYN
            if found == types.ERROR:
                self._problem(at, f"undefined field '{name}'")
        else:
            if held.kind == "param":
                self.bindings.assignable((types.DYN,), (held,))
            elif not held.is_dyn_or_error:
                self._problem(at, f"type '{held}' does not support field selection")
            found = types.DYN
        return (types.optional_of(found) if optional or was_optional else found), field

    # -- calls ------------------------------------------------------------------------------------------------------------

    def _call(self, node: CallNode) -> types.Type:
        if node.function == "_?._":
            field = node.args[1]
            assert isinstance(field, Literal)
            found, field.value = self._field(node.at, node.args[0], field.value, optional=True)
            return self.bindings.substitute(found)
        args = [self._argument(node, arg) for arg in node.args]
        target = node.target
        if target is not None:
            namespaced = self._functions.get(f"{_dotted(target)}.{node.function}")
            if namespaced is not None:
                node.function, node.target = namespaced.name, None
                return self._overload(node, namespaced, args, member=False)
            args.insert(0, self.check(target))
        function = self._functions.get(node.function.removeprefix("."))
        if function is None:
            self._undeclared(node.at, node.function)
            return types.ERROR
        return self._overload(node, function, args, member=target is not None)

    def _argument(self, node: CallNode, arg: Expr) -> types.Type:
        """Return the type of an argument; the values of ``format`` may be of different types."""
        if node.function != "format" or not isinstance(arg, ListExpr) or arg.optional:
            return self.check(arg)
        for element in arg.elements:
            self.check(element)
        return self.types.add(arg, types.list_of(types.DYN))

    def _overload(self, node: CallNode, function: Function, args: list[types.Type], *, member: bool) -> types.Type:
        if function.name in _LOGICAL:
            return self._logical(node, args)
        result: types.Type | None = None
        fitting: list[str] = []
        for overload in function.overloads:
            if overload.member is not member:
                continue
            found = self._fits(overload, args)
            if found is None:
                continue
            fitting.append(overload.name)
            if result is None:
                result = found
            elif not result.is_dyn and found != result:
                result = types.DYN
        node.overloads = tuple(fitting)
        if result is None:
            given = [self.bindings.substitute(arg, to_dyn=True) for arg in args]
            applied = types.format_call(given, member=member)
            self._problem(node.at, f"found no matching overload for '{function.name}' applied to '{applied}'")
            return types.ERROR
        return result

    def _fits(self, overload: Overload, args: list[types.Type]) -> types.Type | None:
        """Return the result type of an overload for these operands, None if it does not accept them."""
        if len(overload.args) != len(args):
            return None
        result, *wanted = self.bindings.renamed((overload.result, *overload.args))
        if not self.bindings.assignable(tuple(args), tuple(wanted)):
            return None
        return self.bindings.substitute(result)

    def _logical(self, node: CallNode, args: list[types.Type]) -> types.Type:
        wrong = False
        for arg, found in zip(node.args, args, strict=True):
            if not self.bindings.assignable((found,), (types.BOOL,)):
                self._mismatch(arg.at, types.BOOL, found)
                wrong = True
        return types.ERROR if wrong else types.BOOL

    # -- lists, maps, comprehensions --------------------------------------------------------------------------------------

    def _list(self, node: ListExpr) -> types.Type:
        joined: types.Type | None = None
        for at, element in enumerate(node.elements):
            found = self.check(element)
            if at in node.optional:
                found = self._unwrapped(element, found)
            joined = self._joined(element, joined, found)
        return types.list_of(self.bindings.fresh() if joined is None else joined)

    def _struct(self, node: MapExpr) -> types.Type:
        """Return the type of a struct. Its fields are those that are declared; any, for a type that has none declared."""
        declared = self._fields.get(node.struct)
        for entry in node.entries:
            found = self.check(entry.value)
            if entry.optional:
                self._unwrapped(entry.value, found)
            if declared is not None and isinstance(entry.key, Literal) and entry.key.value not in declared:
                self._problem(entry.key.at, f"undefined field '{entry.key.value}'")
        return types.Type("struct", node.struct)

    def _map(self, node: MapExpr) -> types.Type:
        if node.struct:
            return self._struct(node)
        keys: types.Type | None = None
        values: types.Type | None = None
        for entry in node.entries:
            keys = self._joined(entry.key, keys, self.check(entry.key))
            found = self.check(entry.value)
            if entry.optional:
                found = self._unwrapped(entry.value, found)
            values = self._joined(entry.value, values, found)
        if keys is None or values is None:
            return types.map_of(self.bindings.fresh(), self.bindings.fresh())
        return types.map_of(keys, values)

    def _unwrapped(self, node: Expr, found: types.Type) -> types.Type:
        held, was_optional = types.unwrap_optional(found)
        if not was_optional and not held.is_dyn:
            self._mismatch(node.at, types.optional_of(held), held)
        return held

    def _joined(self, node: Expr, before: types.Type | None, found: types.Type) -> types.Type:
        """Unify the type of an element with that of the elements before it, as all elements of a literal must have one type."""
        if before is None:
            return found
        if self.bindings.assignable((before,), (found,)):
            return types.most_general(before, found)
        self._mismatch(node.at, before, found)
        return types.ERROR

    def _fold(self, node: Fold) -> types.Type:
        range_type = self.check(node.range)
        accumulated = self.check(node.start)
        range_type = self.bindings.substitute(range_type)
        self._scopes.append({node.accumulator: accumulated})
        self._scopes.append(dict(zip(node.variables, self._element_types(node, range_type), strict=True)))
        self._expect(node.condition, types.BOOL)
        self._expect(node.step, accumulated)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self.bindings.substitute(result)

    def _element_types(self, node: Fold, range_type: types.Type) -> list[types.Type]:
        """Return the types of a comprehension's variables: the element, or index (or key) and value."""
        two = len(node.variables) == 2
        if range_type.kind == "list":
            return [types.INT, range_type.params[0]] if two else [range_type.params[0]]
        if range_type.kind == "map":
            return list(range_type.params) if two else [range_type.params[0]]
        # cel-go reports ``any`` as a type that cannot be iterated, but accepts the result.
        if range_type.kind in {"dyn", "error", "param"}:
            self.bindings.assignable((types.DYN,), (range_type,))
            return [types.DYN] * len(node.variables)
        self._problem(
            node.range.at,
            f"expression of type '{range_type}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )
        return [types.ERROR] * len(node.variables)

    def _expect(self, node: Expr, wanted: types.Type) -> None:
        found = self.check(node)
        if not self.bindings.assignable((wanted,), (found,)):
            self._mismatch(node.at, wanted, found)


def _dotted(node: Expr) -> str:
    """Return ``a.b.c`` for names joined by dots. For any other node the text contains NUL, so that it equals no name."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        return f"{_dotted(node.operand)}.{node.field}"
    return "\0"


def _type_of_value(value: Value) -> types.Type:
    """Return the type of a literal."""
    if value is None:
        return types.NULL
    if isinstance(value, bool):
        return types.BOOL
    if isinstance(value, UInt):
        return types.UINT
    return {int: types.INT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES}[type(value)]

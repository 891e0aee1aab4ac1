"""Prove what a plugin without ``reuse`` reads, from the source of its methods, so that its answers can be kept.

A plugin in the form for one node costs a call for each node and pod, and most such methods are small expressions of labels. If
the method reads nothing but parts of its pod, parts of its node object and constants, and does nothing else, its answer is a
function of these; then the promise follows: scope NODE (NODE_PODS where it reads sums over
the node's pods), and a signature of the parts of the pod that it reads. Whatever is not
on the short lists here leaves the plugin without a promise, and it runs for every pod and node: a call of another object, a
write, an import, a use of the pod as a whole.

What is proven is the code that runs: the source is compiled again, and counts only if it gives the same bytecode. Attributes
of the plugin and globals that a method reads are looked at again before each decision, as ``Reuse.outside`` is.

    def filter_node(self, pod, node):
        return None if node.labels.get("team") == pod.labels.get("team") else Hold.because("another team")

reads the label ``team`` of the pod, and the node: pods with equal values of it get equal answers.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
from collections.abc import Callable, Hashable, Mapping
from enum import Enum, auto
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final

import msgspec

from moorage.framework.reuse import Reuse, Scope
from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

#: The methods that can be proven, with the number of their parameters. A plugin with other methods of a decision has state.
_PROVABLE: Final = ("filter_node", "score_node")
_STATEFUL: Final = frozenset([
    "pre_filter", "add_pod", "remove_pod", "filter", "post_filter", "pre_score", "score", "normalize", "normalize_over",
    "reserve", "unreserve", "permit", "pre_bind", "bind", "post_bind", "pre_score_disabled",
])  # fmt: skip
#: Functions without effects whose results depend on their arguments alone.
_FUNCTIONS: Final = frozenset([
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "frozenset", "int", "len", "list", "max", "min", "ord",
    "range", "round", "set", "sorted", "str", "sum", "tuple", "zip",
])  # fmt: skip
#: Methods of texts, mappings and sequences that neither write nor read anything else.
_METHODS: Final = frozenset([
    "casefold", "count", "endswith", "find", "get", "index", "isdecimal", "isdigit", "items", "join", "keys", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit", "rstrip", "split", "startswith", "strip",
    "upper", "values",
])  # fmt: skip
#: What may be read of a node for scope NODE, with the method ``allocatable``; for NODE_PODS, with the method ``requested``; and
#: of a pod for a signature that follows from its shape. Of the node object, all but its resource version: heartbeats change it.
_OF_NODE: Final = frozenset({"name", "labels", "annotations", "allowed_pods"})
_OF_SUMS: Final = frozenset({"pod_count", "nonzero_cpu", "nonzero_memory"})
_OF_OBJECT: Final = frozenset({"spec", "status", "name", "labels"})
_OF_POD: Final = frozenset({"namespace", "priority"})
_PRIMITIVES: Final = (str, int, float, bool, bytes, type(None))
_DEEPEST: Final = 4
_BARRED: Final = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode


class _UnprovenError(Exception):
    """Something is not on the lists."""


class _Kind(Enum):
    PLAIN = auto()
    SELF = auto()
    POD = auto()
    NODE = auto()
    LABELS = auto()  # the labels of the pod
    SPEC = auto()
    OBJECT = auto()  # the node object
    HOLD = auto()  # the class


def proven_reuse(plugin: object) -> Reuse | None:
    """Return the promise that the methods of a plugin without ``reuse`` keep; None if they are not proven to keep one."""
    cls = type(plugin)
    present = [name for name in _PROVABLE if hasattr(cls, name)]
    if not present or any(hasattr(plugin, name) for name in _STATEFUL):
        return None
    if cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__getattr__"):
        return None
    proof = _Proof(plugin)
    try:
        for name in present:
            proof.method(name)
    except (_UnprovenError, RecursionError):
        return None
    return proof.reuse()


def _hashable(value: Any) -> Hashable:
    """Return a part of a spec in a form that is equal for equal parts."""
    try:
        return _encode(value)
    except OverflowError:  # an integer beyond 64 bits, in a field that is kept as it is given
        return repr(value)


class _Proof:
    """What the methods of one plugin read."""

    def __init__(self, plugin: object) -> None:
        self._plugin, self._cls = plugin, type(plugin)
        #: Parts of pods by what they are, and values that may be replaced.
        self.of_pod: dict[Hashable, Callable[[PodInfo], Hashable]] = {}
        self.watched: dict[Hashable, Callable[[], Hashable]] = {}
        self.scope = Scope.NODE
        self._deep = 0

    def reuse(self) -> Reuse:
        name = f"proven {self._cls.__module__}.{self._cls.__qualname__} {id(self._plugin)}"
        parts, watched = tuple(self.of_pod.values()), tuple(self.watched.values())

        def signature(pod: PodInfo) -> Mapping[str, Hashable]:
            return {name: tuple([part(pod) for part in parts])}

        def outside() -> Hashable:
            return tuple([value() for value in watched])

        return Reuse(
            self.scope, signature, signature_reads=(), signature_reads_metadata=True, outside=outside if watched else None
        )

    def method(self, name: str) -> None:
        """Look at a method of the plugin that gets a pod and a node."""
        function = self._function(name)
        if function.__code__.co_argcount != 3:
            raise _UnprovenError
        self.run(function, (_Kind.SELF, _Kind.POD, _Kind.NODE))

    def _function(self, name: str) -> FunctionType:
        """Return a method that is a plain function of a class."""
        if name in getattr(self._plugin, "__dict__", {}):
            raise _UnprovenError
        found = inspect.getattr_static(self._cls, name, None)
        if not isinstance(found, FunctionType):
            raise _UnprovenError
        return found

    def helper(self, name: str) -> FunctionType:
        """Return a method that another one calls; it may be replaced later."""
        found = self._function(name)
        self.watched["method", name] = lambda: id(inspect.getattr_static(self._plugin, name, None))
        return found

    def run(self, function: FunctionType, given: tuple[_Kind, ...]) -> None:
        """Look at a function that gets these arguments."""
        self._deep += 1
        if self._deep > _DEEPEST:
            raise _UnprovenError
        _Body(self, function, given).read()
        self._deep -= 1

    def labels(self) -> None:
        self.of_pod["labels"] = lambda pod: frozenset(pod.labels.items())

    def label(self, key: str) -> None:
        self.of_pod["label", key] = lambda pod: pod.labels.get(key)

    def pod(self, field: str) -> None:
        self.of_pod[field] = lambda pod: getattr(pod, field)

    def spec(self, field: str) -> None:
        self.of_pod["spec", field] = lambda pod: _hashable(getattr(pod.spec, field))

    def constant(self, what: Hashable, get: Callable[[], Any]) -> None:
        """Note a value from outside the method: one that cannot change in itself, but may be replaced."""
        if not _is_fixed(get()):
            raise _UnprovenError

        def version() -> Hashable:
            value = get()
            return (type(value), value) if _is_fixed(value) else id(value)

        self.watched[what] = version

    def attribute(self, name: str) -> None:
        """Note an attribute of the plugin."""
        if name.startswith("__"):
            raise _UnprovenError
        held = inspect.getattr_static(self._plugin, name, self)
        if held is self or not _is_fixed(held):  # a property, a slot, a method, or what can change in itself
            raise _UnprovenError
        plugin = self._plugin
        self.constant(("attribute", name), lambda: getattr(plugin, name, None))


def _is_fixed(value: Any) -> bool:
    """Return whether a value cannot change in itself."""
    if type(value) in (tuple, frozenset):
        return all(map(_is_fixed, value))
    return type(value) in _PRIMITIVES or type(value) is Hold


def _same_code(one: CodeType, other: CodeType) -> bool:
    """Return whether two compilations of a function do the same."""

    def alike(a: Any, b: Any) -> bool:
        if isinstance(a, CodeType):
            return isinstance(b, CodeType) and _same_code(a, b)
        return type(a) is type(b) and repr(a) == repr(b)

    return (
        (one.co_code, one.co_names, one.co_varnames, one.co_argcount, one.co_kwonlyargcount, one.co_freevars)
        == (other.co_code, other.co_names, other.co_varnames, other.co_argcount, other.co_kwonlyargcount, other.co_freevars)
        and len(one.co_consts) == len(other.co_consts)
        and all(map(alike, one.co_consts, other.co_consts))
    )


@lru_cache(maxsize=8)
def _compiled(source: str) -> tuple[dict[tuple[str, int], ast.FunctionDef], dict[tuple[str, int], CodeType]]:
    """Return the functions of a file and their code, by name and line.

    Raises  SyntaxError, ValueError
    """
    tree = ast.parse(source)
    trees = {(one.name, one.lineno): one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    codes: dict[tuple[str, int], CodeType] = {}
    waiting = [compile(tree, "plugin", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        codes[code.co_name, code.co_firstlineno] = code
        waiting += (one for one in code.co_consts if isinstance(one, CodeType))
    return trees, codes


def _source_of(function: FunctionType) -> ast.FunctionDef:
    """Return the source of a function, if it is that of the code that runs."""
    code = function.__code__
    if code.co_flags & _BARRED or code.co_freevars or code.co_kwonlyargcount or function.__defaults__:
        raise _UnprovenError
    key = code.co_name, code.co_firstlineno
    try:
        trees, codes = _compiled("".join(linecache.getlines(code.co_filename, function.__globals__)))
    except (OSError, ValueError, SyntaxError, RecursionError):
        raise _UnprovenError from None
    found, compiled = trees.get(key), codes.get(key)
    if found is None or compiled is None or found.decorator_list or not _same_code(compiled, code):
        raise _UnprovenError
    return found


class _Body:
    """The statements and expressions of one function. Each method returns nothing, or raises _UnprovenError."""

    def __init__(self, proof: _Proof, function: FunctionType, given: tuple[_Kind, ...]) -> None:
        self._proof, self._globals = proof, function.__globals__
        self._tree = _source_of(function)
        names = [one.arg for one in (*self._tree.args.posonlyargs, *self._tree.args.args)]
        if len(names) != len(given):
            raise _UnprovenError
        self._given = dict(zip(names, given, strict=True))
        stored = {one.id for one in ast.walk(self._tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        if stored & self._given.keys():
            raise _UnprovenError
        self._locals = stored
        self._numbers = stored - {name for name, is_number in self._bindings() if not is_number}

    def _bindings(self) -> list[tuple[str, bool]]:
        """Return each local name that is bound, with whether it is bound to a number that is written down."""
        found = []
        for one in ast.walk(self._tree):
            targets: list[ast.expr] = []
            is_number = False
            match one:
                case ast.Assign():
                    targets = one.targets
                    is_number = isinstance(one.value, ast.Constant) and type(one.value.value) in {int, float}
                case ast.AnnAssign() | ast.NamedExpr() | ast.For() | ast.comprehension():
                    targets = [one.target]
            for target in targets:
                found += [(name.id, is_number) for name in ast.walk(target) if isinstance(name, ast.Name)]
        return found

    def read(self) -> None:
        self._block(self._tree.body)

    # -- statements ------------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt]) -> None:
        for one in body:
            self._statement(one)

    def _statement(self, one: ast.stmt) -> None:
        match one:
            case ast.Return(value=value):
                if value is not None:
                    self._plain(value)
            case ast.If() | ast.While():
                self._plain(one.test)
                self._block([*one.body, *one.orelse])
            case ast.For():
                self._target(one.target)
                self._plain(one.iter)
                self._block([*one.body, *one.orelse])
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._target(target)
                self._plain(value)
            case ast.AnnAssign(target=ast.Name(), value=value) if value is not None:
                self._plain(value)
            case ast.AugAssign(target=ast.Name(id=name), value=value) if name in self._numbers:
                self._plain(value)  # of a number: nothing else is changed in place
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Break() | ast.Continue():
                pass
            case _:
                raise _UnprovenError

    def _target(self, one: ast.expr) -> None:
        if isinstance(one, ast.Tuple):
            for part in one.elts:
                self._target(part)
        elif not isinstance(one, ast.Name):
            raise _UnprovenError

    # -- expressions -----------------------------------------------------------------------------------------------

    def _plain(self, one: ast.expr | None) -> None:
        """Read an expression whose value is no pod, node, plugin or class."""
        if one is None:
            return
        kind = self._kind(one)
        if kind is _Kind.LABELS:
            self._proof.labels()
        elif kind is not _Kind.PLAIN:
            raise _UnprovenError

    def _all(self, *several: ast.expr | None) -> _Kind:
        for one in several:
            self._plain(one)
        return _Kind.PLAIN

    def _kind(self, one: ast.expr) -> _Kind:  # noqa: C901, PLR0911, PLR0912 (a list of expressions)
        match one:
            case ast.Constant():
                return _Kind.PLAIN
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=value, attr=name):
                return self._attribute(value, name)
            case ast.Call():
                return self._call(one)
            case ast.Subscript(value=value, slice=ast.Constant(value=str() as key)) if self._is_labels(value):
                self._proof.label(key)
                return _Kind.PLAIN
            case ast.Subscript(value=value, slice=at):
                return self._all(value, at)
            case ast.Slice():
                return self._all(one.lower, one.upper, one.step)
            case ast.Compare():
                return self._compare(one)
            case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values) | ast.Set(elts=values):
                return self._all(*values)
            case ast.JoinedStr(values=values):
                return self._all(*values)
            case ast.FormattedValue(value=value, format_spec=form):
                return self._all(value, form)
            case ast.BinOp():
                return self._all(one.left, one.right)
            case ast.UnaryOp():
                return self._all(one.operand)
            case ast.IfExp():
                return self._all(one.test, one.body, one.orelse)
            case ast.Dict():
                return self._all(*one.keys, *one.values)
            case ast.NamedExpr():
                return self._all(one.value)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                self._generators(one.generators)
                return self._all(one.elt)
            case ast.DictComp():
                self._generators(one.generators)
                return self._all(one.key, one.value)
        raise _UnprovenError

    def _generators(self, several: list[ast.comprehension]) -> None:
        for one in several:
            if one.is_async:
                raise _UnprovenError
            self._target(one.target)
            self._all(one.iter, *one.ifs)

    def _name(self, name: str) -> _Kind:
        if name in self._given:
            return self._given[name]
        if name in self._locals:
            return _Kind.PLAIN
        if name not in self._globals:
            raise _UnprovenError
        if self._globals[name] is Hold:
            self._proof.watched["global", name, id(self._globals)] = self._identity(name)
            return _Kind.HOLD
        held = self._globals
        self._proof.constant(("global", name, id(held)), lambda: held.get(name))
        return _Kind.PLAIN

    def _identity(self, name: str) -> Callable[[], Hashable]:
        held = self._globals
        return lambda: id(held.get(name, getattr(builtins, name, None)))

    def _is_labels(self, one: ast.expr) -> bool:
        match one:
            case ast.Attribute(value=ast.Name(id=name), attr="labels"):
                return self._given.get(name) is _Kind.POD
        return False

    def _attribute(self, value: ast.expr, name: str) -> _Kind:  # noqa: PLR0911 (a list of attributes)
        kind = self._kind(value)
        if name.startswith("_") and kind is not _Kind.SELF:
            raise _UnprovenError
        match kind:
            case _Kind.POD if name == "labels":
                return _Kind.LABELS
            case _Kind.POD if name == "spec":
                return _Kind.SPEC
            case _Kind.POD if name in _OF_POD:
                self._proof.pod(name)
                return _Kind.PLAIN
            case _Kind.SPEC if name != "node_name":
                self._proof.spec(name)
                return _Kind.PLAIN
            case _Kind.NODE if name == "node":
                return _Kind.OBJECT
            case _Kind.NODE if name in _OF_SUMS:
                self._proof.scope = Scope.NODE_PODS
                return _Kind.PLAIN
            case _Kind.NODE | _Kind.OBJECT if name in (_OF_NODE if kind is _Kind.NODE else _OF_OBJECT):
                return _Kind.PLAIN
            case _Kind.SELF:
                self._proof.attribute(name)
                return _Kind.PLAIN
            case _Kind.PLAIN:
                return _Kind.PLAIN
        raise _UnprovenError

    def _compare(self, one: ast.Compare) -> _Kind:
        left = one.left
        for how, right in zip(one.ops, one.comparators, strict=True):
            match how, left, right:
                case ((ast.In() | ast.NotIn()), ast.Constant(value=str() as key), _) if self._is_labels(right):
                    self._proof.label(key)
                case ((ast.Is() | ast.IsNot()), _, ast.Constant(value=None | True | False)):
                    self._plain(left)
                case ((ast.Is() | ast.IsNot()), _, _):  # which object it is does not follow from its value
                    raise _UnprovenError
                case _:
                    self._all(left, right)
            left = right
        return _Kind.PLAIN

    def _call(self, one: ast.Call) -> _Kind:
        if any(isinstance(arg, ast.Starred) for arg in one.args) or any(given.arg is None for given in one.keywords):
            raise _UnprovenError
        match one.func:
            case ast.Name(id=name) if name not in self._given and name not in self._locals:
                return self._call_name(one, name)
            case ast.Attribute(value=value, attr=name):
                return self._call_method(one, value, name)
        raise _UnprovenError

    def _call_name(self, one: ast.Call, name: str) -> _Kind:
        found = self._globals.get(name, getattr(builtins, name, None))
        if isinstance(found, FunctionType):
            self._proof.watched["global", name, id(self._globals)] = self._identity(name)
            return self._helper(one, found, ())
        if name not in _FUNCTIONS or found is not getattr(builtins, name):
            raise _UnprovenError
        if any(given.arg not in {"default", "reverse", "start", "strict"} for given in one.keywords):
            raise _UnprovenError
        if name in self._globals:
            self._proof.watched["global", name, id(self._globals)] = self._identity(name)
        return self._all(*one.args, *(given.value for given in one.keywords))

    def _helper(self, one: ast.Call, function: FunctionType, first: tuple[_Kind, ...]) -> _Kind:
        """Look at a function that is called, with the arguments that it gets."""
        if one.keywords:
            raise _UnprovenError
        given = []
        for arg in one.args:
            kind = self._kind(arg)
            if kind is _Kind.LABELS:
                self._proof.labels()
                kind = _Kind.PLAIN
            if kind is _Kind.HOLD:
                raise _UnprovenError
            given.append(kind)
        self._proof.run(function, (*first, *given))
        return _Kind.PLAIN

    def _call_method(self, one: ast.Call, value: ast.expr, name: str) -> _Kind:
        given = [*one.args, *(each.value for each in one.keywords)]
        if self._is_labels(value) and name == "get" and one.args and isinstance(one.args[0], ast.Constant):
            key = one.args[0].value
            if isinstance(key, str):
                self._proof.label(key)
                return self._all(*given[1:])
        match self._kind(value):
            case _Kind.HOLD if name == "because":
                return self._all(*given)
            case _Kind.NODE if name in {"allocatable", "requested"}:
                if name == "requested":
                    self._proof.scope = Scope.NODE_PODS
                return self._all(*given)
            case _Kind.SELF:
                return self._helper(one, self._proof.helper(name), (_Kind.SELF,))
            case _Kind.PLAIN if name in _METHODS:
                return self._all(*given)
            case _Kind.LABELS if name in _METHODS:
                self._proof.labels()
                return self._all(*given)
        raise _UnprovenError

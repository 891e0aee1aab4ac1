"""The plugin contract: mypy checks it, only ``framework.profile`` looks up members, and the reference page states it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from moorage.errors import InputError
from moorage.framework import changes, explaining, points
from moorage.framework.points import Plugin, Reuse, Scope
from moorage.framework.profile import reuse_of
from moorage.plugins import BUILTIN
from moorage.plugins.shared.releases import PLUGINS_1_21, VARIANTS
from moorage.testing.builders import a_pod

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "moorage"
PAGE = (ROOT / "docs" / "reference" / "extension-points.md").read_text("utf-8")
PAGE_OF_TYPES = (ROOT / "docs" / "reference" / "plugin-types.md").read_text("utf-8")
PROTOCOLS = {
    name: cls for name in points.__all__ if isinstance(cls := getattr(points, name), type) and Plugin in cls.__mro__[1:]
}
METHODS = {
    method: protocol
    for protocol in PROTOCOLS.values()
    for method in protocol.__abstractmethods__
    if method in protocol.__dict__
}

# -- mypy -----------------------------------------------------------------------------------------------------------------

HEAD = """
from collections.abc import Iterator

from moorage.framework.points import FilterPlugin, PreFilterPlugin, Reusable, Reuse, Scope
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView
"""
SOUND = """
class Sound(PreFilterPlugin[str], FilterPlugin[str], Reusable):
    name = "Sound"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {"a": 1})

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> str | Skip:
        return SKIP

    def filter(self, state: str, nodes: NodeView) -> Iterator[Reject]:
        yield from ()

Sound()
"""
WRONG = {
    "one node for the view": ("self, state: str, node: NodeInfo) -> Iterator[Reject]", "NodeView"),
    "another state than PreFilter's": ("self, state: int, nodes: NodeView) -> Iterator[Reject]", "str"),
    "a Hold for rejects": ("self, state: str, nodes: NodeView) -> Hold", "Iterable[Reject]"),
    "a parameter too many": (
        "self, state: str, nodes: NodeView, more: int) -> Iterator[Reject]",
        "incompatible with supertype",
    ),
}
#: The modules whose types the check needs; all others count as Any, which makes mypy quick.
READ = (
    "framework/points.py", "framework/verdicts.py", "framework/reuse.py", "framework/answer_forms.py", "state/view.py",
    "state/pod_info.py", "state/cluster.py",
)  # fmt: skip


@pytest.mark.slow
def test_mypy_rejects_a_wrong_filter(tmp_path):
    classes = [
        f'class Wrong{at}(FilterPlugin[str]):\n    name = "W"\n    def filter({head}: raise NotImplementedError\n'
        for at, (head, _) in enumerate(WRONG.values())
    ]
    missing = 'class Missing(FilterPlugin[str]):\n    name = "Missing"\n\nMissing()\n'
    program = tmp_path / "plugins.py"
    program.write_text("\n".join([HEAD, SOUND, *classes, missing]), "utf-8")
    options = ["--strict", "--follow-imports=skip", "--config-file=/dev/null", f"--cache-dir={tmp_path}", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, *(str(SOURCE / name) for name in READ), str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env={"MYPYPATH": str(ROOT / "src")})
    lines = program.read_text("utf-8").splitlines()
    errors = re.findall(r"plugins\.py:(\d+): error: (.*)", ran.stdout)
    said = {lines[int(line) - 1].strip(): text for line, text in errors}
    for head, part in WRONG.values():
        assert part in said.pop(f"def filter({head}: raise NotImplementedError")
    assert list(said) == ["Missing()"]
    assert 'Cannot instantiate abstract class "Missing" with abstract attribute "filter"' in said["Missing()"]


# -- where members are looked up ---------------------------------------------------------------------------------------------


def lookups(path):
    """Yield where a module looks up a member by name on something that may be a plugin."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "attr(" in text else ():
        by_name = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"getattr", "hasattr"}
        if by_name and re.search(r"\b(plugin|rule|step|cls)\b", ast.unparse(node.args[0])):
            yield f"{path.relative_to(SOURCE)}:{node.lineno}"


@pytest.mark.slow
def test_members_of_plugins_are_looked_up_in_three_modules():
    found = {place for path in SOURCE.rglob("*.py") for place in lookups(path)}
    assert {place.partition(":")[0] for place in found} == {
        "framework/profile.py", "framework/explaining.py", "framework/proven_reuse.py",
    }  # fmt: skip


def test_the_runner_reads_only_the_name_of_a_plugin():
    """Beyond ``getattr``: mypy refuses any other member, as a step's plugin has the type ``Plugin``."""
    assert [name for name in vars(Plugin) if not name.startswith("_")] == ["name"]


# -- the built-in plugins ----------------------------------------------------------------------------------------------------

BUILT_IN = [*BUILTIN, *PLUGINS_1_21.values()]


@pytest.mark.parametrize("cls", BUILT_IN, ids=lambda cls: f"{cls.__module__}")
def test_the_head_of_a_built_in_plugin_names_all_its_points(cls):
    assert {method for method, protocol in METHODS.items() if hasattr(cls, method) and protocol not in cls.__mro__} == set()
    assert cls.__abstractmethods__ == set()


# -- the reference page ------------------------------------------------------------------------------------------------------


def test_the_page_has_exactly_the_methods_of_the_contract():
    table = PAGE[: PAGE.index("A plugin with arguments")]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines() if line.startswith("|")][2:]
    told = {one: protocol.strip("`") for _, protocol, methods in rows for one in re.findall(r"`([^`]+)`", methods)}
    contract = {}
    for method, protocol in METHODS.items():
        member = inspect.getattr_static(protocol, method)
        parameters = [] if isinstance(member, property) else [*inspect.signature(member).parameters][1:]
        signature = method if isinstance(member, property) else f"{method}({', '.join(parameters)})"
        contract[signature] = protocol.__name__
    assert told == contract


def test_the_page_has_exactly_the_methods_for_explanations():
    section = PAGE[PAGE.index("## Explaining a refusal") :]
    told = re.findall(r"^\| `(\w+\([^`]*\))` \|", section[: section.index("\n## ")], re.MULTILINE)
    protocols = {name: getattr(module, name) for module in (explaining, changes) for name in module.__all__}.values()
    methods = [
        f"{name}({', '.join([*inspect.signature(inspect.getattr_static(cls, name)).parameters][1:])})"
        for cls in protocols
        for name in getattr(cls, "__abstractmethods__", ())
        if name in vars(cls)
    ]
    assert sorted(told) == sorted(methods)


def test_the_page_of_types_has_the_promises_and_scopes_with_what_they_mean():
    types = PAGE_OF_TYPES
    reuse, scope = (types.partition(f"### {name}\n")[2].partition("\n### ")[0] for name in ("Reuse", "Scope"))
    assert [
        field.name for field in fields(Reuse) if not re.search(rf"^\* `{field.name}(?:\([^)]*\))?` \w", reuse, re.MULTILINE)
    ] == []
    assert [one.name for one in Scope if not re.search(rf"^\| `Scope.{one.name}` \| \w", scope, re.MULTILINE)] == []


def a_like(**metadata):
    """A pod that uses what signatures read, of the given labels and owners."""
    container = {
        "name": "c",
        "image": "app",
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "1"}},
    }
    return a_pod("p", metadata=metadata, nodeSelector={"a": "b"}, tolerations=[{"key": "a"}], containers=[container])


@pytest.mark.parametrize(
    "cls", dict.fromkeys([*BUILT_IN, *VARIANTS.values()]), ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)
def test_a_signature_of_our_own_reads_labels_and_owners_only_where_it_says_so(cls):
    needs_shape = cls.name == "RequestedToCapacityRatio"
    reuse = reuse_of(cls(msgspec.convert({"shape": [{"utilization": 0, "score": 10}]}, cls.Args)) if needs_shape else cls())
    if reuse.signature is not None and reuse.signature_reads is not None and not reuse.signature_reads_metadata:
        owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "r", "uid": "r", "controller": True}
        assert reuse.signature(a_like()) == reuse.signature(a_like(labels={"job": "a"}, ownerReferences=[owner]))


# -- promises ----------------------------------------------------------------------------------------------------------------


class Base:
    name = "Base"
    reuse = Reuse(Scope.NODE, signature=lambda pod: {})

    def filter(self, state, nodes):
        return ()

    def helper(self):
        return 1


def test_a_subclass_keeps_promises_unless_it_overrides_or_adds_what_they_cover():
    class Helps(Base):
        def helper(self):
            return 2

    class Filters(Base):
        def filter(self, state, nodes):
            return ()

    class Scores(Base):
        def score(self, state, nodes):
            return nodes.zeros()

    class Repeats(Filters):
        reuse = Base.reuse

    assert [reuse_of(plugin()) == Base.reuse for plugin in (Base, Helps, Filters, Scores, Repeats)] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert reuse_of(Filters()) == Reuse()


def test_an_invalid_reuse_is_an_error():
    class Odd(Base):
        reuse = "always"

    class Broken(Base):
        @property
        def reuse(self):
            raise KeyError("x")

    with pytest.raises(InputError, match="plugin Base: declares reuse = 'always'"):
        reuse_of(Odd())
    with pytest.raises(InputError, match="plugin Base failed in reuse: KeyError"):
        reuse_of(Broken())


def test_the_first_plugin_has_six_lines():
    """The class on the page for plugin authors: no base class, no promise, one method."""
    text = (ROOT / "docs" / "extend" / "write-a-plugin.md").read_text("utf-8")
    code = text[text.index("class QuietNodes:") : text.index("```\n\n`unresolvable`")]
    assert len([line for line in code.splitlines() if line.strip() and '"""' not in line]) <= 6

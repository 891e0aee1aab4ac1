"""Which plugins there are, and how a faulty one is turned away."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from moorage.errors import InputError
from moorage.framework.args import PluginArgs
from moorage.framework.registry import ENTRY_POINT_GROUP, Registry, load


class MineArgs(PluginArgs, frozen=True):
    size: int = 3


class Mine:
    name = "Mine"
    Args = MineArgs

    def __init__(self, args):
        self.args = args

    def filter_node(self, state, node): ...


class Bare:
    name = "Bare"

    def pre_enqueue(self, pod): ...


def test_plugins_are_found_by_name():
    found = Registry([Mine, Bare])
    assert list(found) == ["Mine", "Bare"]
    assert found["Mine"] is Mine
    assert "Yours" not in found
    assert found.points() == {"Mine": ("filter",), "Bare": ("preEnqueue",)}


def test_plugins_are_built_with_their_arguments():
    found = Registry([Mine, Bare])
    assert found.build("Mine").args == MineArgs()
    assert found.build("Mine", MineArgs(size=5)).args.size == 5
    assert found.build("Bare").name == "Bare"


def test_arguments_may_be_known_without_the_class():
    found = Registry([Mine], {"Yours": MineArgs})
    assert [found.args_type(name) for name in ("Mine", "Yours", "Bare")] == [MineArgs, MineArgs, None]
    assert "Yours" not in found
    assert found.with_installed().args_type("Yours") is MineArgs


def installed(monkeypatch, *points):
    found = tuple(EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in points)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == ENTRY_POINT_GROUP else ())
    return Registry([Bare])


def test_installed_plugins_are_added(monkeypatch):
    assert load("collections:OrderedDict").__name__ == "OrderedDict"
    given = installed(monkeypatch, ("a", "my_installed:Mine"))
    monkeypatch.setitem(__import__("sys").modules, "my_installed", type("Module", (), {"Mine": Mine}))
    assert list(given.with_installed()) == ["Bare", "Mine"]
    assert list(given) == ["Bare"]


def test_an_unimportable_installed_plugin_is_named(monkeypatch):
    given = installed(monkeypatch, ("theirs", "no_such_module:Mine"))
    with pytest.raises(InputError, match=r"plugin theirs \(no_such_module:Mine\) cannot be imported: ModuleNotFoundError"):
        given.with_installed()


def test_a_plugin_name_can_be_registered_once():
    with pytest.raises(InputError, match="that name is taken"):
        Registry([Mine, Mine])


@pytest.mark.parametrize("reference", ["", "a", "a:", ":b", "../a.py"])
def test_a_reference_names_a_module_and_a_class(reference):
    with pytest.raises(InputError, match="write it as module:Class"):
        load(reference)


class NeedsMore:
    name = "NeedsMore"

    def __init__(self, size):
        self.size = size

    def filter_node(self, pod, node): ...


class Refuses(NeedsMore):
    name = "Refuses"

    def __init__(self):
        raise InputError("points: no such label")


def test_a_plugin_that_fails_to_build_is_reported_with_the_reason():
    with pytest.raises(
        InputError,
        match=r"^plugin NeedsMore cannot be built: TypeError: .*missing 1 required .*; without Args it is given none$",
    ):
        Registry([NeedsMore]).build("NeedsMore")
    with pytest.raises(InputError, match=r"^points: no such label$"):
        Registry([Refuses]).build("Refuses")


OWN = "class Own:\n    name = 'Own'\n\n    def pre_enqueue(self, pod): ...\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the plugin file ``own_rules.py``; what loading it leaves in this process is undone."""
    (tmp_path / "own_rules.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_rules", None)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_plugin_is_loaded_from_a_file(folder, absolute):
    file = folder / "own_rules.py" if absolute else "./own_rules.py"
    found = load(f"{file}:Own")
    assert (found.name, found.__module__) == ("Own", "own_rules")
    assert load(f"{file}:Own") is found


def test_a_spawned_process_finds_the_class_of_a_file(folder):
    (folder / "rules").mkdir()
    (folder / "own_rules.py").rename(folder / "rules" / "own_rules.py")
    pickled = pickle.dumps(load("rules/own_rules.py:Own"))
    # multiprocessing hands the module path to the processes that it spawns.
    program = f"import pickle, sys; sys.path = {sys.path!r}; print(pickle.loads({pickled!r}).name)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout == "Own\n"


FILE_FAULTS = {
    "no such file": ("own_rule.py:Own", "there is no file own_rule.py; did you mean own_rules.py?"),
    "no such folder": ("nowhere/gpu.py:Own", "there is no file nowhere/gpu.py"),
    "no such class": ("own_rules.py:Owm", "module own_rules has no Owm; did you mean Own?"),
    "no class": ("./own_rules.py", "write it as module:Class or file.py:Class"),
    "name of another module": ("json.py:Own", "the name json is taken by another module"),
    "a dot in the name": ("own.v2.py:Own", "a module's name has no dot; rename the file"),
}


@pytest.mark.parametrize(("reference", "words"), FILE_FAULTS.values(), ids=FILE_FAULTS)
def test_a_file_without_the_plugin_is_refused_with_a_hint(folder, reference, words):
    for name in ("json.py", "own.v2.py"):
        (folder / name).write_text(OWN)
    with pytest.raises(InputError) as refused:
        load(reference)
    assert words in str(refused.value)


class Copy(Bare):
    """A newer copy of an installed plugin."""


def test_a_named_plugin_replaces_the_installed_one_of_its_name(monkeypatch):
    given = installed(monkeypatch, ("Mine", "no_such_module:Mine"), ("other", "my_installed:Bare"))
    monkeypatch.setitem(sys.modules, "my_installed", type("Module", (), {"Bare": Bare}))
    shipped = Registry([])
    found = shipped.with_installed(without=frozenset({"Mine"})).with_named([Mine, Copy], shipped)
    assert (found["Mine"], found["Bare"]) == (Mine, Copy)
    assert found.replaced == (
        "plugin Mine of --plugins replaces the installed one (no_such_module:Mine)",
        f"plugin Bare of --plugins replaces the installed one ({__name__})",
    )
    with pytest.raises(InputError, match="that name is taken"):
        given.with_named([Copy], given)  # here it is built in
    with pytest.raises(InputError, match="that name is taken"):
        shipped.with_named([Bare, Copy], shipped)
    assert list(shipped.with_named([Bare, Bare], shipped)) == ["Bare"]

"""Plugins that change while a cluster runs: found by their files, imported again, and kept if the new code is wrong."""

import sys
from types import SimpleNamespace

import pytest

from moorage.errors import InputError
from moorage.framework.registry import load
from moorage.interfaces.cli.live.up import PluginFiles

RULES = "import reload_helper\nclass Picky:\n    name = 'Picky'\n    says = '{}' + reload_helper.WORD\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "reload_helper.py").write_text("WORD = '!'\n")
    (tmp_path / "reload_rules.py").write_text(RULES.format("one"))
    yield tmp_path
    for name in ("reload_rules", "reload_helper"):
        sys.modules.pop(name, None)


def built(folder):
    """Return what a scheduler with the plugin is to ``PluginFiles``."""
    plugin = load(f"{folder / 'reload_rules.py'}:Picky")()
    return SimpleNamespace(profiles={"default-scheduler": SimpleNamespace(plugins={"Picky": plugin})})


def says(scheduler):
    return scheduler.profiles["default-scheduler"].plugins["Picky"].says


def test_a_changed_file_is_imported_again(folder):
    files = PluginFiles(built(folder))
    assert files.names == ["reload_helper.py", "reload_rules.py"]
    assert not files.have_changed()
    (folder / "reload_rules.py").write_text(RULES.format("two words"))
    assert files.have_changed()
    assert says(files.reload(lambda: built(folder))) == "two words!"
    assert not files.have_changed()
    (folder / "reload_helper.py").write_text("WORD = '?!'\n")
    assert says(files.reload(lambda: built(folder))) == "two words?!"


def test_an_error_leaves_the_old_code_loaded(folder):
    files = PluginFiles(built(folder))
    old = sys.modules["reload_rules"]
    (folder / "reload_rules.py").write_text("class Picky:\n    def\n")
    with pytest.raises(InputError, match=r"SyntaxError: .*\(reload_rules.py, line 2\)"):
        files.reload(lambda: built(folder))
    assert sys.modules["reload_rules"] is old
    assert not files.have_changed(), "it is tried again after the next change"
    (folder / "reload_rules.py").write_text(RULES.format("three"))
    assert says(files.reload(lambda: built(folder))) == "three!"


def test_a_file_that_is_being_written_is_waited_for(folder):
    files = PluginFiles(built(folder))
    (folder / "reload_rules.py").unlink()
    assert not files.have_changed()


def test_only_files_of_the_user_are_followed(folder):
    builtin = SimpleNamespace(plugins={"NodeName": load("moorage.plugins.node_name:NodeName")()})
    assert PluginFiles(SimpleNamespace(profiles={"x": builtin})).names == []

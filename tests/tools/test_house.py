import pytest

from tools.house import loaded, measures, modules, undefined

CYCLE = """import moorage.framework.table

# -- deciding ----


class Cycle:
    def five(self, a, b, c, d, *, e):
        import moorage.plugins

    def six(self, a, b, c, d, *, e, f):
        pass
"""
NODE_NAME = """# -- one --
# -- another, of the same file --
NAMES = 'moorage.core.early', 'moorage.core.cycle', 'moorage.core.optional'
from moorage.framework import table
KEPT, GONE, PART = '_kept', '_classes', f'{NAMES}_classes'
"""
FILES = {
    "README.md": "",
    "pyproject.toml": "",
    "docs/testing.md": "`moorage.testing.builders` makes pods.\n",
    "docs/contribute/testing.md": "",
    "tests/test_oracle.py": "from moorage.testing import oracle\n",
    "src/moorage/__init__.py": "",
    "src/moorage/__main__.py": "raise SystemExit('no module of a floor')\n",
    "src/moorage/errors.py": "",
    "src/moorage/framework/__init__.py": "",
    "src/moorage/framework/table.py": "import moorage.errors\n\n\ndef many(a, b, c, d, e, f):\n    a._kept = 1\n",
    "src/moorage/core/__init__.py": "",
    "src/moorage/core/cycle.py": CYCLE,
    "src/moorage/core/early.py": "import moorage.plugins.node_name\n",
    "src/moorage/core/optional.py": "import a_library_that_nobody_has\n",
    "src/moorage/plugins/node_name.py": NODE_NAME,
    "src/moorage/plugins/__init__.py": "",
    "src/moorage/testing/__init__.py": "",
    "src/moorage/testing/builders.py": "_classes = 1\n",
    "src/moorage/testing/oracle.py": "",
}
FOUND = {
    "a floor that loads those below it": ("foreign modules that framework loads", []),
    "a package and a module of another floor": (
        "foreign modules that core loads",
        ["moorage.plugins", "moorage.plugins.node_name"],
    ),
    "functions of one floor alone": ("functions of core with over 5 parameters", ["moorage/core/cycle.py:10 six (6)"]),
    "each file with banners": ("files with banners", ["moorage/core/cycle.py (1)", "moorage/plugins/node_name.py (2)"]),
    "folders alone": ("floors without a page in docs/contribute", ["core", "framework", "plugins"]),
    "a name that no module near it defines": (
        "names in strings that nothing defines",
        ["moorage/plugins/node_name.py:5 _classes"],
    ),
    "a module of tests alone": ("modules that only tests import", ["moorage/testing/oracle.py"]),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("house")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def measured(root):
    return {one.name: one for one in measures(root)}


@pytest.mark.parametrize(("name", "found"), FOUND.values(), ids=FOUND)
def test_it_finds(measured, name, found):
    assert list(measured[name].over) == found


def test_a_held_aim_is_broken_and_another_is_not_met_yet(measured):
    states = {name: one.state for name, one in measured.items()}
    assert states["modules that only tests import"] == "BROKEN"
    assert states["files with banners"] == "not yet"
    assert states["foreign modules that framework loads"] == "ok"


def test_a_floor_loads_what_its_modules_import_at_once(root):
    assert loaded(root, "framework") == ["moorage.errors", "moorage.framework", "moorage.framework.table"]


@pytest.mark.slow
def test_every_private_name_in_a_string_is_defined():
    assert list(undefined(modules())) == []

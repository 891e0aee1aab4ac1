import pytest

from tools.house import measures

FILES = {
    "README.md": "",
    "pyproject.toml": "",
    "docs/testing.md": "`moorage.testing.builders` makes pods.\n",
    "tests/test_oracle.py": "from moorage.testing import oracle\n",
    "src/moorage/__init__.py": '"""Moorage."""\n\nfrom moorage.engine.machine import Machine\n',
    "src/moorage/__main__.py": "",
    "src/moorage/engine/__init__.py": "",
    "src/moorage/engine/machine.py": '"""A\n\nmachine."""\n\n# why\nimport math\n\n\ndef decide():\n    return math.pi\n',
    "src/moorage/engine/table.py": "LIMITS = {'cpu': 1}\n",
    "src/moorage/core/cycle/cycle.py": "import moorage.engine.table\n\n\nclass Cycle:\n    def decide(self):\n        pass\n",
    "src/moorage/plugins/node_name.py": "def rejects():\n    return True\n",
    "src/moorage/plugins/__init__.py": "NAMES = 'moorage.plugins.node_name', 'moorage.core.cycle.cycle'\n",
    "src/moorage/testing/__init__.py": "",
    "src/moorage/testing/builders.py": "def a_pod():\n    pass\n" + 60 * "#\n",
    "src/moorage/testing/oracle.py": "def judge():\n    pass\n" + 600 * "#\n",
}
FOUND = {
    "every line of Python files": ("lines of src/moorage", 3 + 10 + 1 + 6 + 2 + 1 + 62 + 602),
    "folders and modules": ("entries at the top", 4),
    "what is short, but data and plugins": ("files under 60 lines (no plugin, entry point or data)", 2),
    "what is long": ("files over 600 lines", 1),
    "imports among lines of code": ("imports, % of the lines of code", round(100 * 3 / 16, 1)),
    "a room of the core below core": ("lines of cycle", 6),
    "a room of the core": ("lines of engine", 11),
    "decide beyond one": ("definitions of decide beyond one", 1),
    "a module of tests alone": ("modules that only tests import", 1),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    root = tmp_path_factory.mktemp("house")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return {one.name: one for one in measures(root)}


@pytest.mark.parametrize(("name", "value"), FOUND.values(), ids=FOUND)
def test_it_counts(measured, name, value):
    assert measured[name].value == value


def test_it_names_what_is_over_and_says_when_a_held_limit_is_broken(measured):
    alone = measured["modules that only tests import"]
    assert (list(alone.over), alone.state) == (["moorage/testing/oracle.py"], "BROKEN")
    assert measured["definitions of decide beyond one"].state == "not yet"
    assert measured["entries at the top"].state == "ok"

"""Which tests a change reaches."""

import pytest

from tools.reach import Imports, reached

FILES = {
    "README.md": "",
    "src/moorage/__init__.py": "",
    "src/moorage/state/__init__.py": "",
    "src/moorage/state/table.py": "",
    "src/moorage/state/kinds.toml": "",
    "src/moorage/state/view.py": "from moorage.state import table\n",
    "src/moorage/core/queue.py": "def f():\n    import moorage.state.view\n",
    "tests/state/test_table.py": "",
    "tests/state/test_table_of_nodes.py": "",
    "tests/state/test_view.py": "from moorage.state.view import View\n",
    "tests/core/test_queue.py": "from moorage.core.queue import f\n",
    "tests/core/driving.py": "from moorage.state.table import Table\n",
    "tests/core/test_driven.py": "from tests.core.driving import x\n",
    "tests/test_docs.py": "",
    "tests/test_words.py": "",
}
NEAR = ["tests/core/test_driven.py", "tests/state/test_view.py"]
MIRROR = ["tests/state/test_table.py", "tests/state/test_table_of_nodes.py"]
CASES = {  # changed files, distance → tests
    "its mirror": (["src/moorage/state/table.py"], 0, MIRROR),
    "importers of a helper of tests": (["src/moorage/state/table.py"], 2, [*MIRROR, *NEAR]),
    "further away": (["src/moorage/state/table.py"], 3, [*MIRROR, *NEAR, "tests/core/test_queue.py"]),
    "an import in a function": (["src/moorage/core/queue.py"], 1, ["tests/core/test_queue.py"]),
    "a table of the folder": (["src/moorage/state/kinds.toml"], 1, ["tests/state/test_view.py"]),
    "a test": (["tests/core/test_queue.py"], 1, ["tests/core/test_queue.py"]),
    "a helper of tests": (["tests/core/driving.py"], 1, ["tests/core/test_driven.py"]),
    "a page": (["README.md"], 1, ["tests/test_docs.py", "tests/test_words.py"]),
    "what nothing reads": (["LICENSE"], 2, []),
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(("changed", "distance", "tests"), CASES.values(), ids=CASES)
def test_a_change_reaches(root, changed, distance, tests):
    assert reached(root, changed, distance) == tests


def test_modules_are_found_with_their_distance(root):
    around = list(Imports(root).around({"moorage.state.table"}, 9))
    assert around[0] == (1, "moorage.state.view")
    assert (2, "moorage.core.queue") in around

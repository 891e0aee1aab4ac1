"""Short import paths: they give the modules of the floors, and nothing in the project imports by them."""

import importlib
import pickle
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import moorage

ROOT = Path(__file__).parent.parent
SHORT = moorage._STANDS_IN
#: It makes up a project; it plays earlier checkouts, too.
EXEMPT = {ROOT / "tests/tools/test_house.py", ROOT / "benchmarks/mix_driver.py", Path(__file__)}
SMALL = ("cel", "dynamics", "gpu_sharing", "queue", "traces")


@pytest.mark.slow
@pytest.mark.parametrize(("short", "package"), SHORT.items(), ids=SHORT)
def test_a_short_path_is_the_package(short, package):
    assert importlib.import_module(f"moorage.{short}") is importlib.import_module(package)
    assert importlib.import_module(package).__spec__.name == package


@pytest.mark.parametrize("short", SMALL)
def test_modules_below_a_short_path_are_those_of_the_package(short):
    package = importlib.import_module(SHORT[short])
    inner = [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    assert len(inner) > 3
    for name in inner:
        assert importlib.import_module(name.replace(SHORT[short], f"moorage.{short}", 1)) is importlib.import_module(name)


STATEMENTS = {  # in a process that has imported nothing of moorage
    "a package": "import moorage.dynamics; moorage.dynamics.HOUR",
    "a package from moorage": "from moorage import cel; cel.compile_selector",
    "a module below": "from moorage.gpu_sharing import fgd; import moorage.plugins.gpu_sharing.fgd as own; assert fgd is own",
    "the package first": "import moorage.core.queue.backoff as own; import moorage.queue.backoff as short; assert own is short",
    "names of a module": "from moorage.engine.facts import Seen; assert Seen.__module__ == 'moorage.core.engine.facts'",
    "an attribute of its package": "import moorage.traces.formats, moorage.simulator; moorage.simulator.traces.formats",
}


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_program_imports_by_a_short_path(statement):
    run = subprocess.run([sys.executable, "-W", "error", "-c", statement], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_what_was_pickled_by_a_short_path_is_read():
    fact = importlib.import_module("moorage.core.engine.facts").Seen
    assert pickle.loads(b"cmoorage.engine.facts\nSeen\n.") is fact
    assert pickle.loads(pickle.dumps(fact)) is fact


@pytest.mark.parametrize("name", ["moorage.cel.no_such_module", "moorage.no_such_package"])
def test_what_is_not_there_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=name.rpartition(".")[2]):
        importlib.import_module(name)


def test_a_second_import_of_moorage_adds_no_finder():
    importlib.reload(moorage)
    assert [type(finder).__name__ for finder in sys.meta_path].count("_ShortPaths") == 1


NAMED = re.compile(rf"(?:from|import) moorage\.(?:{'|'.join(SHORT)})\b|moorage\.(?:{'|'.join(SHORT)})\.\w+[.:]\w+")


@pytest.mark.slow
def test_pages_examples_and_programs_use_the_full_paths_which_type_checkers_follow():
    places = ("src", "tests", "tools", "benchmarks", "docs", "examples")
    paths = [path for place in places for path in (ROOT / place).rglob("*.[pm][yd]") if path not in EXEMPT]
    assert len(paths) > 1500
    assert [str(path.relative_to(ROOT)) for path in paths if NAMED.search(path.read_text(encoding="utf-8"))] == []

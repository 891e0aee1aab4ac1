"""One writer of placements: nothing else in the engine counts a pod on a node, confirms it or forgets it."""

import ast
from pathlib import Path

import moorage

ENGINE = Path(moorage.__file__).parent / "core" / "engine"
#: Methods of the cluster that count a pod of ours on a node or take it off, and of the queue that take the first pod out.
WRITES = {"assume", "assume_on", "assume_placed", "place_on", "confirm", "forget", "take_first", "drop_first", "advance"}
#: What has the same name and another meaning: facts of a watch about many pods, and pods that were deleted.
OTHERS = {"event_handlers.confirm", "event_handlers.forget"}


def writes(path):
    """Yield each call of a writing method in a module, as ``owner.method``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            yield f"{owner}.{node.func.attr}"


def test_only_the_placer_writes_placements():
    found = {path.stem: {*writes(path)} - OTHERS for path in ENGINE.glob("*.py")}
    assert {"cluster.assume", "cluster.assume_on", "cluster.forget", "queue.take_first", "order.advance"} <= found["placer"]
    beyond = {name: sorted(one for one in calls if not one.startswith("placer.")) for name, calls in found.items()}
    assert {name: calls for name, calls in beyond.items() if calls and name != "placer"} == {}

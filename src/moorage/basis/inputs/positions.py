"""Find the line of a field in a file, for messages. This parses the file again, which is slow, so only faults use it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from moorage.basis.inputs.files import InputFile

if TYPE_CHECKING:
    import yaml


#: Larger files were not written by hand, and parsing them takes seconds.
_MOST_BYTES: Final = 1 << 20
_PLACE: Final = re.compile(r"(?::(?P<line>\d+))?(?P<items>(?:: items\[\d+\])*)")


def line_of(source: InputFile, where: str, path: Sequence[str | int]) -> int | None:
    """Return the line of a field, counted from 1; None if it cannot be found.

    ``where`` is the position of an object of ``source``, as ``find_objects`` gives it; ``path`` leads from the object to the
    field.
    """
    place = _PLACE.fullmatch(where.removeprefix(source.where))
    if place is None or source.size > _MOST_BYTES:
        return None
    root = _root(source.data, int(place["line"] or 0))
    steps: list[str | int] = []
    for index in re.findall(r"\d+", place["items"]):
        steps += ["items", int(index)]
    return _line(root, [*steps, *path])


@lru_cache(maxsize=4)
def _root(data: bytes, line: int) -> yaml.Node | None:
    """Return the document that starts on a line, or the first one for line 0; None if there is none."""
    for node in _object_lines_documents(data):
        if line in {0, node.start_mark.line + 1}:
            return node
    return None


def _object_lines_documents(data: bytes) -> Iterator[yaml.Node]:
    import yaml  # loaded only for the place of a fault

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from (node for node in yaml.compose_all(data, Loader=loader) if node is not None)
    except (yaml.YAMLError, ValueError, RecursionError):
        return


def _line(node: yaml.Node | None, path: Sequence[str | int]) -> int | None:
    found: int | None = None
    for step in path:
        found, node = _child(node, step)
        if found is None:
            return None
    return found


def _child(node: yaml.Node | None, step: str | int) -> tuple[int | None, yaml.Node | None]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if getattr(key, "value", None) == step:
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None, None

"""The images that nodes have: the rows of each image, and a column for each one that plugins ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from moorage.api.core import Node
from moorage.state.columns import Column, RowSpace

#: How many images have a column.
_COLUMNS: Final = 64


class ImageHolders(NamedTuple):
    """An image: its size in bytes, as reported by the first node that has it, and the rows that have it."""

    size: int
    rows: set[int]


class NodeImages:
    """The holders of each image by name, followed as nodes come, go and move."""

    __slots__ = ("_columns", "_space", "holders")

    def __init__(self, space: RowSpace) -> None:
        self.holders: dict[str, ImageHolders] = {}
        self._space = space
        self._columns: dict[str, Column] = {}

    def column(self, name: str) -> Column:
        """Return a column of uint8 that is 1 for each node with an image, which some node must have; read it only."""
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) >= _COLUMNS:
                self._columns.clear()
            column = self._columns[name] = self._space.column(np.uint8)
            column.data[list(self.holders[name].rows)] = 1
        return column

    def add(self, row: int, node: Node) -> None:
        """Add the images of a node."""
        known, columns = self.holders, self._columns
        for image in node.status.images:
            for name in image.names:
                if (holders := known.get(name)) is None:
                    known[name] = tuple.__new__(ImageHolders, (image.size_bytes, {row}))  # half the time of a call by name
                else:
                    holders.rows.add(row)
                if columns and name in columns:
                    columns[name].cells[row] = 1

    def drop(self, row: int, node: Node) -> dict[str, int]:
        """Remove the images of a node. Return the sizes of those that no node has any more, by name."""
        gone: dict[str, int] = {}
        for image in node.status.images:
            for name in image.names:
                holders = self.holders.get(name)
                if holders is not None:
                    holders.rows.discard(row)
                    if name in self._columns:
                        self._columns[name].cells[row] = 0
                    if not holders.rows:
                        gone[name] = self.holders.pop(name).size
        return gone

    def move(self, old: int, new: int, node: Node) -> None:
        """Note the new row of a node; columns move by themselves."""
        for image in node.status.images:
            for name in image.names:
                rows = self.holders[name].rows
                rows.discard(old)
                rows.add(new)

    def save_sizes(self, node: Node) -> Callable[[], bool]:
        """Return a function that restores the sizes of images that only this node has, and returns whether one differed."""
        names = [name for image in node.status.images for name in image.names]
        # An image keeps its size as long as any node has it.
        sizes = {name: held.size for name in names if (held := self.holders.get(name)) is not None and len(held.rows) == 1}

        def restore() -> bool:
            changed = {name: size for name, size in sizes.items() if self.holders[name].size != size}
            for name, size in changed.items():
                self.holders[name] = self.holders[name]._replace(size=size)
            return bool(changed)

        return restore

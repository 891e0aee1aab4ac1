"""The kept priorities of rows are those of a fresh look, whatever happens to nodes and pods."""

from __future__ import annotations

import random

from moorage.state.row_priorities import RowPriorities
from moorage.state.table import NodeTable
from moorage.testing.builders import a_node, a_pod


def plainly(table, rows):
    return {pod.priority for row in rows for pod in table.pods[row].values()}


def test_kept_priorities_follow_the_table():
    rng, table, kept = random.Random(0), NodeTable(), RowPriorities()
    placed = []
    for step in range(300):
        what = rng.randrange(5)
        if what == 0 or not len(table):
            table.add_node(a_node(f"n{step}"))
        elif what == 1 and len(table) > 4:
            name = rng.choice(table.nodes).metadata.name
            table.remove_node(name)
            placed = [(node, pod) for node, pod in placed if node != name]
        elif what == 2 and placed:
            node, pod = placed.pop(rng.randrange(len(placed)))
            table.remove_pod(table.row_of[node], pod)
        else:
            node = rng.choice(table.nodes).metadata.name
            placed.append((node, a_pod(f"p{step}", priority=rng.randrange(6))))
            table.add_pod(table.row_of[node], placed[-1][1])
        if step % 3 == 0:
            rows = rng.sample(range(len(table)), rng.randrange(len(table) + 1))
            assert kept.on(table, rows) == plainly(table, rows)
        if step % 10 == 0:
            row = rng.randrange(len(table))
            with table.what_if(row):
                for pod in list(table.pods[row].values()):
                    table.remove_pod(row, pod)
                assert kept.on(table, range(len(table))) == plainly(table, range(len(table)))
            assert kept.on(table, range(len(table))) == plainly(table, range(len(table)))
    other = NodeTable()
    assert kept.on(other, []) == set()

"""The names of rows, and their order, follow the table."""

from __future__ import annotations

import random

import numpy as np

from moorage.laboratory.explain.verdicts import row_names
from moorage.state.table import NodeTable
from moorage.testing.builders import a_node


def test_names_and_their_order_are_those_of_the_table():
    rng, table = random.Random(0), NodeTable()
    for step in range(60):
        if rng.random() < 0.3 and len(table):
            table.remove_node(rng.choice(table.nodes).metadata.name)
        else:
            table.add_node(a_node(f"n{rng.randrange(100)}-{step}"))
        if rng.random() < 0.3 and len(table):
            table.update_node(a_node(table.nodes[0].metadata.name, labels={"step": str(step)}))
        found = row_names(table)
        names = [node.metadata.name for node in table.nodes]
        assert list(found.names) == names
        rows = np.array(sorted(rng.sample(range(len(names)), len(names) // 2)), dtype=np.intp)
        assert found.in_order(rows).tolist() == sorted(rows.tolist(), key=names.__getitem__)
        assert row_names(table) is found

"""Each row of the tables of requests: what the embedded API server answers to a case from outside."""

import pytest

from tests.reports.request_tables import FOLDER, load, play

TABLES = sorted(FOLDER.glob("*/requests.toml"))
CASES = [(table, case) for table in TABLES for case in load(table)]


@pytest.mark.parametrize(("table", "case"), CASES, ids=[f"{table.parent.name}/{case['name']}" for table, case in CASES])
def test_a_request_has_its_right_answer(table, case):
    play(case, table)

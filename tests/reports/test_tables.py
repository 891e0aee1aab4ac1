"""Each row of the tables beside the inputs: what the program answers to a case from outside."""

import pytest

from tests.reports.tables import FOLDER, load, play

TABLES = sorted(FOLDER.glob("*/cases.toml"))
CASES = [(table, case) for table in TABLES for case in load(table)]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "case"), CASES, ids=[f"{table.parent.name}/{case['name']}" for table, case in CASES])
def test_a_case_has_its_right_answer(table, case, tmp_path):
    play(case, table, tmp_path)

"""The store of a sweep: what goes in comes out, in both formats; a file is there whole or not at all."""

from __future__ import annotations

import json
import math

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import InputError
from moorage.laboratory.sweeps.jobs import StoredRun
from moorage.laboratory.sweeps.json_lines import JsonLinesFormat
from moorage.laboratory.sweeps.parquet import ParquetFormat
from moorage.laboratory.sweeps.store import RunStore, open_store

FORMATS = {"Parquet": ParquetFormat, "JSON Lines": JsonLinesFormat}
numbers = st.floats(allow_nan=False) | st.integers(-1000, 1000).map(float)
names = st.text("abc.%µ ", min_size=1, max_size=8)


def a_run(labels, metrics, rows):
    series = {"t": np.array(rows), "n": np.arange(len(rows))} if rows else {}
    return StoredRun("k", {**labels, "seed": 3}, metrics, series)


runs = st.builds(
    a_run,
    st.dictionaries(names.map(lambda name: f"axis {name}"), names | st.integers(0, 9), max_size=2),
    st.dictionaries(names, numbers, max_size=4),
    st.lists(numbers, max_size=4),
)  # fmt: skip


@pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
@settings(max_examples=20)
@given(run=runs)
def test_what_is_written_is_read(tmp_path_factory, format_, run):
    folder = tmp_path_factory.mktemp("store")
    RunStore(folder, [format_()]).write(run)
    found = RunStore(folder, [format_()]).read("k")
    assert (found.labels, found.metrics) == (run.labels, run.metrics)
    assert {name: column.tolist() for name, column in found.series.items()} == {
        name: column.tolist() for name, column in run.series.items()
    }


class FailsHalfWay(JsonLinesFormat):
    def write(self, run, file):
        file.write(b'{"key"')
        raise OSError(28, "No space left on device")


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path):
    store = RunStore(tmp_path, [FailsHalfWay()])
    with pytest.raises(InputError, match="No space left on device"):
        store.write(StoredRun("k", {}, {"a": 1.0}))
    assert list((tmp_path / "runs").iterdir()) == []
    assert store.read("k") is None


@pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: b"\0" * len(data)])
def test_a_damaged_file_is_no_run(tmp_path, format_, damage):
    RunStore(tmp_path, [format_()]).write(StoredRun("k", {"seed": 1}, {"a": 1.0}, {"t": np.arange(50)}))
    (path,) = (tmp_path / "runs").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert RunStore(tmp_path, [format_()]).read("k") is None


def test_the_index_and_the_files_serve_other_tools(tmp_path):
    store = open_store(tmp_path)
    made = [
        StoredRun(f"k{seed}", {"config": "a", "seed": seed}, {"wait": math.inf, "n": seed}, {"t": np.arange(3)})
        for seed in (1, 2)
    ]
    for run in made:
        store.write(run)
    store.index(made)
    with duckdb.connect(str(tmp_path / "index.duckdb"), read_only=True) as base:
        assert base.sql("SELECT config, seed, wait, n FROM runs ORDER BY seed").fetchall() == [
            ("a", 1, math.inf, 1.0), ("a", 2, math.inf, 2.0),
        ]  # fmt: skip
        assert base.sql("SELECT count(*), sum(t) FROM series WHERE seed = 2").fetchall() == [(3, 3)]
    assert pq.read_table(tmp_path / "runs" / "k1.parquet").column_names == ["key", "config", "seed", "t"]


def test_without_the_extra_runs_are_json_lines(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "moorage.laboratory.sweeps.parquet", None)
    store = open_store(tmp_path)
    run = StoredRun("k", {"seed": 1}, {"wait": math.inf}, {"t": np.array([0.5])})
    store.write(run)
    store.index([run])
    first, second = (tmp_path / "runs" / "k.jsonl").read_text().splitlines()
    assert json.loads(first)["metrics"] == {"wait": "Infinity"}
    assert json.loads(second) == {"t": 0.5}
    assert json.loads((tmp_path / "index.jsonl").read_text())["key"] == "k"
    monkeypatch.undo()
    assert open_store(tmp_path).read("k").metrics == {"wait": math.inf}

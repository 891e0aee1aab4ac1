"""Runs as Parquet files, and their index as a DuckDB database. Importing this module needs the extra ``frames``.

A file has the columns ``key`` and the axes, then the columns of the run, or one row of its numbers if it has none. The whole
head of the run is in the file's metadata.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from moorage.laboratory.sweeps.jobs import StoredRun
from moorage.laboratory.sweeps.run_heads import head_of, run_of_head

duckdb: Any = importlib.import_module("duckdb")
pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

_HEAD: Final = b"moorage.run"


class ParquetFormat:
    """One Parquet file a run; ``index.duckdb`` has the table ``runs`` and, if runs have columns, the view ``series``."""

    suffix = ".parquet"

    def write(self, run: StoredRun, file: BinaryIO) -> None:
        table = _table(run)
        head = json.dumps(head_of(run), allow_nan=False).encode()
        pq.write_table(table.replace_schema_metadata({_HEAD: head}), file)

    def read(self, path: Path) -> StoredRun:
        # A whole small file in memory is quicker than the readers' threads.
        held = pq.ParquetFile(pa.BufferReader(path.read_bytes()))
        head = json.loads(held.schema_arrow.metadata[_HEAD])
        names = head["columns"]
        table = held.read(columns=names, use_threads=False) if names else None
        return run_of_head(head, {} if table is None else {name: table.column(name).to_numpy() for name in names})

    def index(self, folder: Path, runs: Sequence[StoredRun]) -> None:
        if not runs:
            return
        unfinished = folder / f".index.{os.getpid()}.duckdb"
        unfinished.unlink(missing_ok=True)
        try:
            with duckdb.connect(str(unfinished)) as base:
                base.register("given", _rows_of(runs))
                base.execute("CREATE TABLE runs AS SELECT * FROM given")
                if any(run.series for run in runs):
                    files = str(folder.resolve() / "runs" / "*.parquet").replace("'", "''")
                    base.execute(f"CREATE VIEW series AS SELECT * FROM read_parquet('{files}', union_by_name = true)")  # noqa: S608 - quoted
            unfinished.replace(folder / "index.duckdb")
        finally:
            unfinished.unlink(missing_ok=True)


def _rows_of(runs: Sequence[StoredRun]) -> Any:
    rows = [{"key": run.key, **run.labels, **run.metrics, "seconds": run.seconds} for run in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _table(run: StoredRun) -> Any:
    if not run.series:
        return pa.Table.from_pylist([{"key": run.key, **run.labels, **run.metrics}])
    rows = len(next(iter(run.series.values())))
    constant = {name: pa.repeat(value, rows) for name, value in {"key": run.key, **run.labels}.items()}
    return pa.table({**constant, **{name: pa.array(column) for name, column in run.series.items()}})

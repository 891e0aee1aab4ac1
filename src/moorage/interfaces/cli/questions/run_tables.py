"""``--jobs-table`` and ``--pods-table``: a run as tables in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.api.core import Node
from moorage.api.reading.manifests import read_first_yaml
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.laboratory.compare.run_inputs import priced
from moorage.laboratory.job_frames import jobs_frame, pods_frame, read_power, write_frame
from moorage.report.job_tables import TableSetting
from moorage.report.outcome import Run


def write_tables(given: Mapping[str, Any], run: Run, nodes: Sequence[Node]) -> None:
    """Write the tables that the options ask for.

    Raises  InputError
    """
    prices, path = read_prices(given["prices"]), given["power"]
    power = None if path is None else read_power(read_first_yaml(read_file(path, CONFIG_LIMIT), path), path).on(nodes)
    setting = TableSetting(prices=priced(nodes, prices) if prices else None, power=power)
    if given["jobs_table"]:
        write_frame(jobs_frame(run, setting), given["jobs_table"])
    if given["pods_table"]:
        write_frame(pods_frame(run, setting), given["pods_table"])


def read_prices(path: str | None) -> dict[str, float]:
    """Return the prices of a file, by node, node group or instance type; none without a file.

    Raises  InputError
    """
    if path is None:
        return {}
    found = read_first_yaml(read_file(path, CONFIG_LIMIT), path)
    numbers = isinstance(found, dict) and all(type(price) in (int, float) and price >= 0 for price in found.values())
    if not isinstance(found, dict) or not numbers:
        raise InputError(f"{path}: expected prices by node, node group or instance type, such as 'm5.large: 0.096'")
    return {str(name): float(price) for name, price in found.items()}

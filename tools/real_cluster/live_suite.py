"""``python -m tools.real_cluster.live_suite``: the live tests on a real control plane of this machine.

Those that take any cluster run on one with controllers and played nodes, and on ``moorage up`` with the real kube-scheduler;
those of kube-scheduler's integration tests run on a bare API server, where time jumps. ``--quick`` does the least.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tools.oracles import BuildError, OracleMissingError
from tools.real_cluster import ClusterError, ControlPlane, Wanted, real_cluster
from tools.real_cluster.__main__ import SKIPPED

_QUICK: Final = ("tests/live/real", "tests/tools/test_cluster_checks.py::test_the_cluster_of_the_kubeconfig")
_ANY_CLUSTER: Final = (
    "-k", "not embedded", *_QUICK, "tests/live/server/test_whole_cluster.py", "tests/deploy/test_on_a_cluster.py",
    "tests/interfaces/cli/test_record.py::test_a_cluster_is_recorded",
    "tests/interfaces/cli/test_kubectl.py::test_kubectl_finds_the_plugin",
)  # fmt: skip
_BARE: Final = ("tests/regressions", "-k", "test_integration and real")
#: What the tests on a bare server need: gates, and no admission whose work a controller finishes.
_BARE_CLUSTER: Final = Wanted(
    nodes=0, controllers=False,
    feature_gates="TaintTolerationComparisonOperators=true",
    arguments={"kube-apiserver": (
        "--disable-admission-plugins=TaintNodesByCondition,StorageObjectInUseProtection,ServiceAccount,DefaultTolerationSeconds",
    )},
)  # fmt: skip


def main() -> int:
    """Run; exit with 1 if a test fails, with 77 where the programs cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tools.real_cluster.live_suite", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the commands and the checks of the API server")
    given = parser.parse_args()
    try:
        with real_cluster(Wanted(nodes=3)) as plane:
            failed = _tests(_QUICK if given.quick else _ANY_CLUSTER, plane, {
                "MOORAGE_TEST_REAL_CLUSTER": str(plane.folder), "MOORAGE_TEST_KUBECONFIG": str(plane.kubeconfig),
                "MOORAGE_TEST_KUBE_SCHEDULER": str(plane.folder / "bin" / "kube-scheduler"),
            })  # fmt: skip
        if not given.quick:
            with real_cluster(_BARE_CLUSTER) as plane:
                failed |= _tests(_BARE, plane, {"MOORAGE_TEST_SPARE_KUBECONFIG": str(plane.kubeconfig)})
    except OracleMissingError as error:
        sys.stderr.write(f"skipped: {error}\n")
        return SKIPPED
    except (BuildError, ClusterError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return int(failed)


def _tests(chosen: Sequence[str], plane: ControlPlane, variables: Mapping[str, str]) -> bool:
    """Run tests with kubectl in the path; return True if one fails."""
    path = os.pathsep.join([str(plane.kubectl.parent), os.environ.get("PATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=300", *chosen]
    return subprocess.run(command, env={**os.environ, **variables, "PATH": path}, check=False).returncode != 0  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())

"""Schedule three pods of a shop, one of them part of a release that is not open yet."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from release_gate import ReleaseGate

import moorage
from moorage.testing.plugin_checks import check_plugin

HERE = Path(__file__).parent
CONFIG = (HERE.parent / "config" / "release-gate.yaml").read_bytes()

check_plugin(ReleaseGate())
options = moorage.Options(config=CONFIG, plugins=(ReleaseGate,))
shop = moorage.read([str(HERE / "cluster.yaml")], custom=moorage.kinds_named(options))
_, run = moorage.simulate_cluster(shop, options)
for outcome in run.pods:
    print(f"{outcome.name:6} {outcome.node or outcome.message}")

"""Run a complete scheduler under faults in virtual time, judged by an oracle that shares no code with it.

    python -m tools.simtest --seeds 200        many runs, each with other random faults
    python -m tools.simtest --seed 17          repeat one run and save its history

``moorage.live.server.live_scheduler.Live`` runs as in a real process: watches, loop, engine, binding, lease. Only time and the
sockets are simulated: requests are served by the embedded API server's code. ``Network``, between the two, loses, delays,
repeats and rejects requests as the seed decides. A ``Recording`` keeps everything that happens; when the faults have ended and
the system has settled, ``judge`` checks it.
"""

from __future__ import annotations

from tools.simtest.oracle import judge
from tools.simtest.recording import Recording
from tools.simtest.run import FinishedRun, run
from tools.simtest.virtual_api import Network, VirtualApi, VirtualRest

__all__ = ["FinishedRun", "Network", "Recording", "VirtualApi", "VirtualRest", "judge", "run"]

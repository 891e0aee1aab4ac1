"""A whole scheduler under faults, in virtual time, judged by an oracle that shares no code with it.

    python -m moorage.testing.simtest --seeds 200        many runs, each with another draw of faults
    python -m moorage.testing.simtest --seed 17          one of them again, its history saved

``moorage.server.live.Live`` runs as it would in a process: watches, loop, engine, binding, lease. Only two things are not real:
time, and the sockets, in whose place requests go to the embedded API server's own code. Between the two sits ``Network``, which
loses, delays, repeats and refuses by the seed. Everything that happens is written down in a ``Recording``; when the faults are
over and the world has calmed down, ``judge`` reads it.
"""

from __future__ import annotations

from moorage.testing.simtest.oracle import judge
from moorage.testing.simtest.recording import Recording
from moorage.testing.simtest.run import FinishedRun, run
from moorage.testing.simtest.virtual_api import Network, VirtualApi, VirtualRest

__all__ = ["FinishedRun", "Network", "Recording", "VirtualApi", "VirtualRest", "judge", "run"]

"""When the pods of a node that is gone are deleted, on a cluster and in virtual time.

Source  kubernetes, pkg/controller/podgc/gc_controller.go
"""

from __future__ import annotations

from typing import Final

#: How long a node has to be missing before its pods are deleted, in seconds.
QUARANTINE_S: Final = 40.0

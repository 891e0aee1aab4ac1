"""The decisions in a log: when the decision on a pod was made, and what was decided."""

from __future__ import annotations

from typing import Final

import msgspec

from moorage.api.core import Pod
from moorage.basis.recording.log_reader import ClusterLog

_read: Final = msgspec.json.Decoder(Pod).decode
_DAY: Final = 86_400_000_000


def binding_of(log: ClusterLog, key: str, until: int) -> tuple[int, str]:
    """Return when the pod that exists at a moment was bound, and its node; 0 and "" if that is not in the day before.

    Raises  InputError where the log is damaged
    """
    bound, node = 0, ""
    for one in log.changes_between(max(log.span()[0], until - _DAY), until):
        if one.kind == "Pod" and one.key == key:
            before, after = ("" if body is None else _read(body).spec.node_name for body in (one.before, one.after))
            if not after:
                bound, node = 0, ""
            elif not before and one.before is not None:
                bound, node = one.at, after
    return bound, node

"""The objects of a log at a moment as a List, which every command reads like a dump."""

from __future__ import annotations

from os import PathLike
from typing import Any, Final

import msgspec

from moorage.basis.recording.log_reader import STARTED, ClusterLog, LogState
from moorage.basis.recording.moments import moment_text, parse_moment

__all__ = ["STATE_KEPT_S", "objects_at", "state_of"]

#: A recorder writes a record at least this often, so a longer silence means that none ran.
STATE_KEPT_S: Final = 30.0


def state_of(directory: str | PathLike[str], moment: str = "") -> LogState:
    """Return the state of a log at a moment as ``parse_moment`` reads it; "" for its end.

    Raises  InputError
    """
    log = ClusterLog(directory)
    return log.state_at(parse_moment(moment, *log.span()))


def objects_at(directory: str | PathLike[str], moment: str = "") -> bytes:
    """Return the objects at a moment as a List in JSON, with a record of the log in front.

    Raises  InputError
    """
    state = state_of(directory, moment)
    return state.as_list(msgspec.json.encode(_record(directory, state)))


def _record(directory: str | PathLike[str], state: LogState) -> dict[str, Any]:
    """Return the record of a dump, which says when and where it was taken and what is missing."""
    started = state.marks.get(STARTED)
    facts = {} if started is None else started.facts
    missing = [{"kind": kind, "why": "not served"} for kind in facts.get("unserved", ())]
    silence_s = (state.at - state.recorded_at) / 1e6
    if silence_s > STATE_KEPT_S:
        missing.append({"kind": f"changes after {moment_text(state.recorded_at)}", "why": "no recorder ran"})
    return {
        "apiVersion": "moorage.dev/v1", "kind": "DumpRecord", "metadata": {"name": "dump"},
        "takenAt": moment_text(state.at), "server": facts.get("server", ""), "serverVersion": facts.get("version", ""),
        "notRead": missing,
    }  # fmt: skip

"""How long does each question take, on the demo and on dumps as of production clusters? Each is a command in a new process.

Times are CPU time of the process and its children, from its start; ``scaled_s`` is the time on a machine on which
``sum(range(1000))`` takes 9 µs. Searches end by the clock (``--time-limit``), so they do less on a machine under load:
``stopped`` says which did.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import Any, Final, NamedTuple

import aiohttp

from benchmarks.production_dump import write_production_dump
from benchmarks.what_ifs import loop_us

__all__ = ["CLUSTERS", "measure_questions", "question_names"]

_LOOP_US: Final = 9.0
#: Seconds by the clock after which a question is stopped, and has no figure.
_MOST_S: Final = 400.0
_DEMO: Final = Path(__file__).resolve().parents[1] / "examples" / "demo"
#: What a command prints whose search ended at its limit.
_STOPPED: Final = b"stopped at the time limit"
#: The statuses of an answer: yes, no, undecided.
_ANSWERED: Final = frozenset({0, 2, 3})


class Subject(NamedTuple):
    """A cluster, the most scaled seconds of a question about it, and what to ask about: names that it has."""

    bound_s: float
    nodes: int
    pods: int
    workload: str
    pending: str
    drained: tuple[str, ...]
    zone: str
    types: tuple[str, ...]


def _production(bound_s: float, nodes: int, pods: int) -> Subject:
    names = [f"ip-10-4-0-{at}.eu-west-1.compute.internal" for at in range(16, 21)]
    workload, pending = "deployment/checkout/checkout-api", "platform/search-reindex-too-large"
    return Subject(bound_s, nodes, pods, workload, pending, tuple(names), "eu-west-1a", (names[0], _last(nodes)))


def _last(nodes: int) -> str:
    return f"ip-10-4-{(nodes - 1) // 256}-{(nodes - 1) % 256}.eu-west-1.compute.internal"


CLUSTERS: Final = {
    "demo": Subject(
        10.0, 8, 12, "deployment/web", "default/search-2", ("general-a1", "general-b1", "general-c1"), "zone-a", ("general-c2",)
    ),
    "production": _production(10.0, 300, 6_000),
    "large": _production(30.0, 5_000, 50_000),
}


def _drain(*words: str) -> Callable[[Subject, Path], list[str]]:
    evicting = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
    return lambda of, folder: ["drain", *(of.drained if words else of.drained[:1]), *evicting, *words]


def _plan(of: Subject, folder: Path) -> list[str]:
    types = [{"name": f"type-{at}", "like": node, "price": at + 1} for at, node in enumerate(of.types)]
    (folder / "types.json").write_text(json.dumps(types))
    return ["plan", "--types", str(folder / "types.json")]


#: The arguments of each question, without the input. Those of a sweep, of reading and of a served one follow below.
_QUESTIONS: Final[dict[str, Callable[[Subject, Path], Sequence[str]]]] = {
    "simulate": lambda of, folder: ["simulate"],
    "report": lambda of, folder: ["report"],
    "explain": lambda of, folder: ["explain", of.pending],
    "explain --all": lambda of, folder: ["explain", "--all"],
    "capacity": lambda of, folder: ["capacity", of.workload],
    "plan": _plan,
    "plan --consolidate": lambda of, folder: ["plan", "--consolidate"],
    "drain": _drain(),
    "drain --find-order": _drain("--find-order"),
    "fail --zone": lambda of, folder: ["fail", "--zone", of.zone],
    "survive": lambda of, folder: ["survive"],
    "survive --over zone": lambda of, folder: ["survive", "--over", "zone"],
    "compare": lambda of, folder: ["compare", "--cordon", of.drained[0]],
    "redact": lambda of, folder: ["redact", "--key", str(folder / "key"), "-o", str(folder / "redacted.json")],
}
#: The questions to ``report --serve``, as the web page asks them.
_SERVED: Final[dict[str, Callable[[Subject], dict[str, Any]]]] = {
    "served: report": lambda of: {"report": {}},
    "served: explain": lambda of: {"explain": of.pending},
    "served: drain": lambda of: {"drain": [of.drained[0]], "ignore_daemonsets": True, "force": True},
    "served: fail --zone": lambda of: {"fail": [], "zone": of.zone},
}


def question_names() -> list[str]:
    """Return the names of all questions."""
    return ["read", *_QUESTIONS, "sweep", *_SERVED]


def measure_questions(name: str, folder: Path, asked: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the figures of the questions ``asked``, or of all, about a cluster. Its dump is written to ``folder``, once."""
    of = CLUSTERS[name]
    source = _source(name, of, folder)
    commands = {question: [*words(of, folder), "-f", str(source)] for question, words in _QUESTIONS.items()}
    commands["sweep"] = _sweep(source, folder)  # its grid names the input
    reading = f"from moorage.simulator.cluster_reader import read; read([{str(source)!r}])"
    programs = {"read": ["-c", reading], **{question: ["-m", "moorage", *words] for question, words in commands.items()}}
    for question, words in programs.items():
        if not asked or question in asked:
            yield {"cluster": name, "question": question, **_measured(of, words)}
    served = {question: body(of) for question, body in _SERVED.items() if not asked or question in asked}
    if served:
        yield from ({"cluster": name, **figures} for figures in _serve(of, source, served))


def _source(name: str, of: Subject, folder: Path) -> Path:
    if name == "demo":
        return _DEMO
    path = folder / f"{name}.json"
    if not path.exists():
        write_production_dump(path, of.nodes, of.pods, lean=name == "large")
    return path


def _sweep(source: Path, folder: Path) -> list[str]:
    grid = {"clusters": {"given": str(source)}, "parameters": {"NodeResourcesFit.weight": [1, 5]}, "seeds": "0-1"}
    (folder / "grid.json").write_text(json.dumps({**grid, "metrics": ["pending", "nodesUsed"]}))
    store = folder / f"sweep-{os.urandom(4).hex()}"
    return ["sweep", str(folder / "grid.json"), "--store", str(store), "--processes", "1"]


def _measured(of: Subject, words: Sequence[str]) -> dict[str, Any]:
    before = loop_us()
    with TemporaryFile() as printed:
        process = subprocess.Popen([sys.executable, *words], stdout=printed, stderr=subprocess.DEVNULL)
        stopping = Timer(_MOST_S, process.kill)
        stopping.start()
        _, status, used = os.wait4(process.pid, 0)
        stopping.cancel()
        printed.seek(0)
        stopped = _STOPPED in printed.read()
    process.returncode = os.waitstatus_to_exitcode(status)
    figures = _figures(of, used.ru_utime + used.ru_stime, before, process.returncode)
    return {**figures, "stopped": stopped, "peak_mib": round(used.ru_maxrss / 1024)}


def _figures(of: Subject, cpu_s: float, before: float, status: int) -> dict[str, Any]:
    speed = (before + loop_us()) / 2
    scaled = cpu_s * _LOOP_US / speed
    return {
        "cpu_s": round(cpu_s, 2), "scaled_s": round(scaled, 2), "bound_s": of.bound_s, "loop_us": round(speed, 1),
        "status": status, "within": scaled <= of.bound_s and status in _ANSWERED,
    }  # fmt: skip


# -- moorage report --serve ----------------------------------------------------------------------------------------------------


def _serve(of: Subject, source: Path, served: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "moorage", "report", "--serve", "-f", str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        yield from asyncio.run(_ask(of, link, served, process.pid))
        process.send_signal(signal.SIGINT)


async def _ask(of: Subject, link: str, served: dict[str, dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    base, _, token = link.partition("/ui/#token=")
    found = []
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        await http.post(f"{base}/lab/v1/session", json={"token": token})
        for question, body in served.items():
            before, began = loop_us(), _children_s(pid)
            reply = await (await http.post(f"{base}/lab/v1/questions", json={"question": body})).json()
            while reply.get("state") == "running":
                await asyncio.sleep(0.1)
                reply = await (await http.get(f"{base}/lab/v1/questions/{reply['id']}")).json()
            status = 0 if "answer" in reply else 1
            found.append({"question": question, **_figures(of, _children_s(pid) - began, before, status)})
    return found


def _children_s(pid: int) -> float:
    """Return the CPU seconds of the processes that have ended below the children of a process. For Linux."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    ticks = 0
    for child in children:
        fields = Path(f"/proc/{child}/stat").read_text("ascii").rpartition(")")[2].split()
        ticks += int(fields[13]) + int(fields[14])
    return ticks / os.sysconf("SC_CLK_TCK")

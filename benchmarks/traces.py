"""How much memory does it take to read a trace of many pods? Each format is written with made-up rows and read in a process."""

from __future__ import annotations

import json
import multiprocessing
import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any, BinaryIO, Final

import msgspec

from moorage.simulator.traces.formats import read_trace

__all__ = ["TRACES", "measure_trace"]

_SPEC: Final = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}]}


def _pod(at: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{at}", "namespace": "default"}, "spec": _SPEC}


def _azure(rows: int) -> Iterator[bytes]:
    for at in range(rows):
        yield b"vm%d,sub,dep,%d,%d,90,10,50,Unknown,4,32\n" % (at, at, at + 600)


def _borg(rows: int) -> Iterator[bytes]:
    for at in range(rows // 2):
        of = b'"collection_id":"%d","instance_index":"%d","collection_type":"0","priority":"200"' % (at // 10, at % 10)
        yield b'{"time":"%d","type":"0",%b,"resource_request":{"cpus":0.01,"memory":0.005}}\n' % (600_000_000 + at, of)
        yield b'{"time":"%d","type":"6",%b}\n' % (900_000_000 + at, of)


def _alibaba_2018(rows: int) -> Iterator[bytes]:
    for at in range(rows):
        yield b"M%d,1,j_%d,1,Terminated,%d,%d,100,0.5\n" % (at % 5, at // 5, 86_400 + at, 86_500 + at)


def _alibaba_2020(rows: int) -> Iterator[bytes]:
    for at in range(rows):
        yield b"%032x,worker,1,Terminated,%d,%d,600,29.3,25,T4\n" % (at, 1_000 + at, 2_000 + at)


def _helios(rows: int) -> Iterator[bytes]:
    yield b"job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    for at in range(rows):
        time = b"2020-04-01 00:%02d:%02d" % (at // 60 % 60, at % 60)
        yield b"%d,u%d,vc%d,8,32,1,COMPLETED,%b,%b,%b,600,0\n" % (at, at % 500, at % 30, time, time, time)


def _philly(rows: int) -> Iterator[bytes]:
    yield b"["
    for at in range(rows):
        server = {"ip": f"m{at % 500}", "gpus": ["gpu0", "gpu1"]}
        attempt = {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-09 06:53:12", "detail": [server]}
        job = {
            "status": "Pass", "vc": "ee9e8c", "jobid": f"application_{at}", "attempts": [attempt],
            "submitted_time": "2017-10-07 01:11:39", "user": "ce2f4c",
        }  # fmt: skip
        yield (b"," if at else b"") + json.dumps(job, indent=4).encode()
    yield b"]"


def _kube_scheduler_simulator(rows: int) -> Iterator[bytes]:
    for at in range(rows):
        time = f"2026-01-{1 + at // 86_400 % 28:02}T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z"
        yield json.dumps({"time": time, "event": "Add", "resource": _pod(at)}).encode() + b"\n"


def _kwok(rows: int) -> Iterator[bytes]:
    for at in range(rows):
        yield (
            f"---\napiVersion: action.kwok.x-k8s.io/v1alpha1\nkind: ResourcePatch\nmethod: create\ndurationNanosecond: {at}\n"
            f"resource: {{version: v1, resource: pods}}\ntarget: {{name: pod-{at}, namespace: default}}\ntemplate:\n"
            "  apiVersion: v1\n  kind: Pod\n  spec:\n    containers:\n    - name: c\n      resources:\n"
            "        requests: {cpu: '2', memory: 4Gi}\n"
        ).encode()


def _simkube(rows: int) -> Iterator[bytes]:
    encode = msgspec.msgpack.encode
    yield b"\x85" + encode("version") + encode(2) + encode("config") + encode({}) + encode("events")
    yield b"\xdd" + rows.to_bytes(4, "big")
    for at in range(rows):
        yield encode({"ts": 1000 + at, "applied_objs": [_pod(at)], "deleted_objs": []})
    yield encode("index") + encode({}) + encode("pod_lifecycles") + encode({})


TRACES: Final[Mapping[str, Callable[[int], Iterator[bytes]]]] = {
    "borg-2019": _borg, "azure-2019": _azure, "alibaba-2018": _alibaba_2018, "alibaba-2020": _alibaba_2020,
    "helios": _helios, "philly": _philly, "kube-scheduler-simulator": _kube_scheduler_simulator, "kwok": _kwok,
    "simkube": _simkube,
}  # fmt: skip


def measure_trace(name: str, rows: int = 1_000_000) -> dict[str, Any]:
    """Write a trace and read it in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        with path.open("wb") as file:
            _write(file, TRACES[name](rows))
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            figures = pool.apply(_read, (name, str(path)))
        return {"name": name, "rows": rows, "file_mib": round(path.stat().st_size / (1 << 20)), **figures}


def _write(file: BinaryIO, parts: Iterator[bytes]) -> None:
    file.writelines(parts)


def _read(name: str, path: str) -> dict[str, Any]:
    before, began = _peak_mib(), process_time()
    trace = read_trace(name, path)
    return {
        "pods": len(trace.arrivals), "cpu_s": round(process_time() - began, 1), "before_mib": before, "peak_mib": _peak_mib(),
        "private_mib": _private_peak_mib(),
    }  # fmt: skip


def _peak_mib() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _private_peak_mib() -> int:
    """Return the memory that is not of a mapped file, after reading."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = next(line for line in text.splitlines() if line.startswith("RssAnon:"))
    return round(int(found.split()[1]) / 1024)

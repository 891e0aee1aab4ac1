"""Arrivals of four clusters in their own order: openb as it was published; Azure, Alibaba and Borg made up in its format.

The files of Azure 2019, Alibaba 2018 and Borg 2019 are too large to ship. What is made here has their columns, and proportions
like those in the papers about them, in round numbers: it is no sample of the trace. It is read by the reader of the format.

Azure    two thirds of the machines have 2 cores and more than half of them 4 GB or less; machines of one deployment come
         together and are equal, two in five are alone and one in five are more than five; nine in ten last less than a day
         (Cortez et al., Resource Central, SOSP 2017)
Alibaba  4,000 machines of 96 cores; jobs are graphs of tasks that mostly plan a half or one core and less than one percent of a
         machine's memory; half of the tasks have one instance, some have hundreds; most last less than some minutes
         (Guo et al., Who limits the resource efficiency of my datacenter, IWQoS 2019)
Borg     machines of some twenty shapes; jobs of a heavy tail, with requests of their own that are small parts of a machine, in
         the bands free, best-effort batch, mid, production and monitoring (Tirmazi et al., Borg: the next generation,
         EuroSys 2020)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import moorage
from benchmarks.mix_events import Manifest, Mix, arrivals, manifest
from benchmarks.shapes import HOSTNAME, ZONE

__all__ = ["alibaba", "azure", "borg", "openb"]

_DAY = 86_400.0


def _mix_of(trace: Any, pods: int, nodes: list[Manifest], *, times: bool = True) -> Mix:
    """Return the first arrivals of a trace; without ``times`` they come a second after the other, and stay."""
    later, timed = [], []
    for at, one in enumerate(islice(trace.arrivals, pods)):
        pod = manifest(one.pod)
        later.append(pod)
        timed.append((1.0 + one.time_s, pod, one.duration_s) if times else (1.0 + at, pod, None))
    return Mix(nodes, later, arrivals(timed))


def _read(name: str, rows: Iterator[bytes], machines: Iterator[bytes]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / file) for file in ("pods", "nodes")]
        for path, lines in zip(paths, (rows, machines), strict=True):
            with Path(path).open("wb") as file:
                file.writelines(lines)
        return moorage.read_trace(name, paths[0], paths[1] if Path(paths[1]).stat().st_size else None)


def openb(folder: Path, pods: int) -> Mix:
    """Alibaba's GPU cluster of 2023: 1,523 nodes, tasks that ask for parts of GPUs, in order, each of which stays."""
    trace = moorage.read_trace(
        "openb", str(folder / "openb_pod_list_default.csv"), str(folder / "openb_node_list_all_node.csv")
    )
    return _mix_of(trace, pods, [manifest(node) for node in trace.nodes], times=False)


# -- Azure -------------------------------------------------------------------------------------------------------------------


def azure(nodes: int, pods: int, seed: int = 0) -> Mix:
    """Virtual machines: deployments of equal ones come together, most of them small and short."""
    trace = _read("azure-2019", _virtual_machines(pods, Random(seed)), iter(()))
    return _mix_of(trace, pods, [_host(at, 48, 384) for at in range(nodes)])


def _virtual_machines(pods: int, random: Random) -> Iterator[bytes]:
    at, made = 0.0, 0
    while made < pods:
        at += random.expovariate(1 / 300.0)
        cores, memory = random.choices(
            [
                ("2", "2"),
                ("2", "4"),
                ("2", "8"),
                ("4", "8"),
                ("4", "32"),
                ("8", "32"),
                ("8", "64"),
                ("24", ">64"),
                (">24", ">64"),
            ],
            [15, 24, 26, 12, 9, 6, 3, 3, 2],
        )[0]
        kind = random.choices(["Delay-insensitive", "Interactive", "Unknown"], [30, 10, 60])[0]
        size = 1 if random.random() < 0.4 else random.randint(2, 5) if random.random() < 0.7 else random.randint(6, 60)
        lasts = random.lognormvariate(8.5, 2.0)
        for _ in range(size):
            gone = min(at + lasts * random.uniform(0.9, 1.1), 30 * _DAY)
            name = f"{random.getrandbits(64):016x},s{made % 700},d{at:.0f}"
            yield f"{name},{at:.0f},{max(gone, at + 60):.0f},90,10,50,{kind},{cores},{memory}\n".encode()
            made += 1


def _host(at: int, cores: int, gib: int) -> Manifest:
    name = f"host-{at}"
    offered = {"cpu": str(cores), "memory": f"{gib}Gi", "pods": "110"}
    labels = {HOSTNAME: name, ZONE: f"zone-{at % 3}"}
    status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {},
        "status": status,
    }


# -- Alibaba -----------------------------------------------------------------------------------------------------------------


def alibaba(nodes: int, pods: int, seed: int = 0) -> Mix:
    """Batch tasks: instances of a task come together and are equal, the next task of the job when it ends."""
    trace = _read("alibaba-2018", _tasks(pods, Random(seed)), _machine_meta(nodes))
    return _mix_of(trace, pods, [manifest(node) for node in trace.nodes])


def _tasks(pods: int, random: Random) -> Iterator[bytes]:
    at, made, job = 1.0, 0, 0
    while made < pods:
        job += 1
        at += random.expovariate(1 / 3.0)
        start = at
        for task in range(1 + min(int(random.expovariate(1 / 2.0)), 20)):
            count = 1 if random.random() < 0.5 else min(int(random.paretovariate(0.8)) + 1, 800)
            lasts = random.lognormvariate(3.6, 1.3)
            cpu = random.choices([50, 100, 200, 400, 600], [30, 55, 8, 5, 2])[0]
            memory = random.choices([0.1, 0.2, 0.3, 0.39, 0.5, 0.59, 0.8, 1.0, 2.0], [5, 10, 20, 15, 20, 10, 10, 7, 3])[0]
            kind = f"{random.choice('MRJ')}{task + 1}" + (f"_{task}" if task else "")
            yield f"{kind},{count},j_{job},{1 + job % 12},Terminated,{start:.0f},{start + lasts:.0f},{cpu},{memory}\n".encode()
            made += count
            start += lasts


def _machine_meta(nodes: int) -> Iterator[bytes]:
    for at in range(nodes):
        yield f"m_{at},0,{at % 9},{at // 40},96,100,USING\n".encode()


# -- Borg --------------------------------------------------------------------------------------------------------------------


def borg(nodes: int, pods: int, seed: int = 0) -> Mix:
    """Jobs of a cell: a few have most of the instances, and nearly each job has requests of its own."""
    random = Random(seed)
    trace = _read("borg-2019", _instance_events(pods, random), _machine_events(nodes, random))
    return _mix_of(trace, pods, [manifest(node) for node in trace.nodes])


def _instance_events(pods: int, random: Random) -> Iterator[bytes]:
    at, made, job = 600.0, 0, 0
    ends: list[tuple[float, dict[str, Any]]] = []
    while made < pods:
        job += 1
        at += random.expovariate(1 / 6.0)
        count = min(int(random.paretovariate(0.69)), 2000)
        lasts = random.lognormvariate(6.5, 1.8)
        cpus, memory = min(random.lognormvariate(-4.6, 1.0), 0.5), min(random.lognormvariate(-5.0, 1.1), 0.5)
        requests = {"cpus": round(cpus, 6), "memory": round(memory, 6)}
        priority = random.choices([25, 103, 112, 117, 200, 360], [10, 15, 25, 10, 38, 2])[0]
        for index in range(count):
            of = {"collection_id": str(job), "instance_index": str(index), "collection_type": "0", "priority": str(priority)}
            yield _event(at, "SUBMIT", {**of, "resource_request": requests})
            yield _event(at, "SCHEDULE", of)
            ends.append((at + lasts * random.uniform(0.95, 1.05), of))
            made += 1
    for end, of in ends:
        yield _event(end, "FINISH", of)


def _event(at: float, kind: str, of: dict[str, Any]) -> bytes:
    return json.dumps({"time": str(round(at * 1e6)), "type": kind, **of}).encode() + b"\n"


def _machine_events(nodes: int, random: Random) -> Iterator[bytes]:
    shapes = [
        (cpu, memory) for cpu in (0.25, 0.388, 0.5, 0.59, 0.708, 0.958, 1.0) for memory in (0.167, 0.25, 0.334, 0.5, 1.0)
    ][:21]
    weights = [1.0 / (1 + at) for at in range(len(shapes))]
    random.shuffle(weights)
    for at in range(nodes):
        cpu, memory = random.choices(shapes, weights)[0]
        yield _event(
            0.0, "ADD", {"machine_id": str(at + 1), "switch_id": f"sw{at // 40}", "capacity": {"cpus": cpu, "memory": memory}}
        )

"""Every published format: a small file of our own making, what is read from it, and the place of a fault."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing

import msgspec
import pytest

from moorage.errors import InputError
from moorage.simulator.traces.formats import FORMATS, read_trace

NODES_YAML = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {cpu: 8, memory: 32Gi, pods: 110}}\n"
GIB = 1 << 30


def arrived(trace):
    """Return (name, time, duration, requests) of each arrival."""
    return [
        (one.pod.name, one.time_s, one.duration_s, dict(one.pod.spec.containers[0].resources.requests))
        for one in trace.arrivals
    ]


def machines(trace):
    return {node.name: dict(node.status.allocatable) for node in trace.nodes}


def lines(*rows):
    return ("\n".join(rows) + "\n").encode()


def pod(name, cpu="1", **more):
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec, **more}


def node(name):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "8", "pods": "9"}},
    }


def record(seconds, event, resource):
    return json.dumps({"time": f"2026-01-02T03:04:{seconds:02}.123456789Z", "event": event, "resource": resource})


def test_kube_scheduler_simulator(tmp_path):
    named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}
    (tmp_path / "record.jsonl").write_bytes(
        lines(
            record(5, "Add", node("n1")),
            record(5, "Add", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
            record(6, "Add", pod("a")),
            record(7, "Add", pod("b", "250m")),
            record(8, "Update", pod("a", spec={**pod("a")["spec"], "nodeName": "n1"})),
            record(9, "Delete", named),
            record(11, "Update", pod("b", "250m", status={"phase": "Succeeded"})),
            record(12, "Add", pod("a")),
        )
    )
    found = read_trace("kube-scheduler-simulator", tmp_path / "record.jsonl")
    assert [row[:3] for row in arrived(found)] == [("a", 1.0, 3.0), ("b", 2.0, 4.0), ("a.1", 7.0, None)]
    assert list(machines(found)) == ["n1"]
    assert "1 changes of other objects not read" in found.notes


def deployment(replicas):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }  # fmt: skip


EVENTS = [
    {"ts": 1000, "applied_objs": [deployment(2)], "deleted_objs": []},
    {"ts": 1010, "applied_objs": [deployment(3)], "deleted_objs": []},
    {"ts": 1020, "applied_objs": [deployment(1)], "deleted_objs": []},
    {"ts": 1030, "applied_objs": [], "deleted_objs": [deployment(1)]},
]
LIFECYCLES = {("apps/v1.Deployment", "default/web"): {77: [{"start_ts": 1001, "end_ts": 1016}]}}
SIMKUBE = {  # the trace, (time, duration) of the pods
    "version 1": ([{}, EVENTS, {}, {}], [(0, 30), (0, 20), (10, 10)]),
    "version 2 with lifetimes": (
        {"version": 2, "config": {}, "events": EVENTS, "index": {}, "pod_lifecycles": LIFECYCLES},
        [(0, 15), (0, 15), (10, 15)],
    ),
    "version 3 with lifetimes": (
        {
            "version": 3, "config": {}, "events": EVENTS,
            "index": {"apps/v1.Deployment": {"default/web": {1000: [{"lifecycle": {"Finished": [1000, 1004]}}]}}},
        },
        [(0, 4), (0, 4), (10, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("trace", "expected"), SIMKUBE.values(), ids=SIMKUBE)
def test_simkube(tmp_path, trace, expected):
    (tmp_path / "trace.sktrace").write_bytes(msgspec.msgpack.encode(trace))
    (tmp_path / "nodes.yaml").write_text(NODES_YAML)
    found = read_trace("simkube", tmp_path / "trace.sktrace", tmp_path / "nodes.yaml")
    assert [(time_s, duration) for _, time_s, duration, _ in arrived(found)] == expected
    assert list(machines(found)) == ["n1"]


def test_simkube_pods_and_cron_jobs_have_the_times_that_were_recorded(tmp_path):
    job = {"template": {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}}
    cron = {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
    }  # fmt: skip
    trace = {
        "version": 2, "config": {}, "index": {},
        "events": [
            {"ts": 1000, "applied_objs": [cron], "deleted_objs": []},
            {"ts": 1010, "applied_objs": [pod("bare"), pod("on")], "deleted_objs": []},
            {"ts": 1200, "applied_objs": [], "deleted_objs": [cron]},
        ],
        "pod_lifecycles": {
            ("batch/v1.CronJob", "default/tick"): {7: [{"Finished": [1060, 1090]}, {"Running": 1120}]},
            ("v1.Pod", "default/bare"): {8: [{"Finished": [1011, 1031]}]}, ("v1.Pod", "default/on"): {8: [{"Running": 1011}]},
        },
    }  # fmt: skip
    (tmp_path / "trace.sktrace").write_bytes(msgspec.msgpack.encode(trace))
    found = read_trace("simkube", tmp_path / "trace.sktrace")
    assert sorted(row[1:3] for row in arrived(found) if row[2]) == [(10, 20), (60, 30)]
    assert sorted(row[1] for row in arrived(found) if not row[2]) == [10, 120]


def patch(seconds, method, name, template=None, resource="pods"):
    return {
        "apiVersion": "action.kwok.x-k8s.io/v1alpha1", "kind": "ResourcePatch", "method": method,
        "resource": {"version": "v1", "resource": resource}, "target": {"name": name, "namespace": "default"},
        "durationNanosecond": seconds * 10**9, **({} if template is None else {"template": template}),
    }  # fmt: skip


def test_kwok_recording(tmp_path):
    documents = [
        node("n1"), pod("a"), patch(3, "create", "b", pod("b", "2")), patch(4, "patch", "a", {"spec": {"nodeName": "n1"}}),
        patch(5, "patch", "a", {"status": {"phase": "Succeeded"}}), patch(9, "delete", "b"),
        patch(9, "create", "default", {}, "namespaces"),
    ]  # fmt: skip
    (tmp_path / "record.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    found = read_trace("kwok", tmp_path / "record.yaml")
    assert [row[:3] for row in arrived(found)] == [("a", 0.0, 5.0), ("b", 3.0, 6.0)]


def test_kwok_recordings_are_read_in_parts_and_faults_name_their_line(tmp_path, monkeypatch):
    text = "".join(
        f"---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p{at}\nspec:\n  containers: [{{name: c}}]\n" for at in range(20)
    )
    (tmp_path / "record.yaml").write_text(text)
    whole = arrived(read_trace("kwok", tmp_path / "record.yaml"))
    monkeypatch.setattr("moorage.simulator.traces.kwok._PART", 100)
    assert arrived(read_trace("kwok", tmp_path / "record.yaml")) == whole
    assert len(whole) == 20
    (tmp_path / "record.yaml").write_text(f"{text}---\na: [\n---\n")
    with pytest.raises(InputError, match=r"record.yaml:14[23]"):
        read_trace("kwok", tmp_path / "record.yaml")


def test_kwok_snapshot_of_workloads(tmp_path):
    (tmp_path / "snapshot.yaml").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("n1"), deployment(2)]})
    )
    found = read_trace("kwok", tmp_path / "snapshot.yaml")
    assert [row[1:3] for row in arrived(found)] == [(0.0, None)] * 2
    assert any("has no times" in note for note in found.notes)


def borg(time_us, kind, index, *, cpus=0.25, alloc=0, collection=7):
    return {
        "time": str(time_us), "type": kind, "collection_id": str(collection), "instance_index": str(index), "priority": "200",
        "alloc_collection_id": str(alloc), "resource_request": {"cpus": cpus, "memory": 0.5},
    }  # fmt: skip


MACHINE = {"time": "0", "machine_id": "5", "type": "1", "capacity": {"cpus": 0.5, "memory": 0.25}, "switch_id": "s/1="}


def test_borg_2019(tmp_path):
    second = 1_000_000
    events = [
        borg(700 * second, "0", 0), borg(705 * second, "SCHEDULE", 0), borg(720 * second, "4", 0),
        borg(725 * second, "6", 0), borg(0, 3, 1), borg(900 * second, 0, 2, alloc=3), borg(610 * second, "SUBMIT", 3),
    ]  # fmt: skip
    (tmp_path / "instances.json").write_bytes(lines(*map(json.dumps, events)))
    (tmp_path / "machines.json").write_bytes(
        lines(json.dumps(MACHINE), json.dumps({**MACHINE, "machine_id": "6", "type": "2"}))
    )
    found = read_trace("borg-2019", tmp_path / "instances.json", tmp_path / "machines.json")
    requests = {"cpu": "24000m", "memory": str(192 * GIB)}
    assert arrived(found) == [("7-1", 0.0, None, requests), ("7-3", 10.0, None, requests), ("7-0", 100.0, 20.0, requests)]
    assert machines(found) == {"machine-5": {"cpu": "48000m", "memory": str(96 * GIB), "pods": "110"}}
    assert found.arrivals[0].pod.spec.priority == 200
    assert any("1 instances inside" in note for note in found.notes)
    header = "time,type,collection_id,instance_index,priority,alloc_collection_id,resource_request_cpus,resource_request_memory"
    (tmp_path / "instances.csv.gz").write_bytes(gzip.compress(lines(header, "610000000,0,7,3,200,0,0.25,0.5")))
    assert arrived(read_trace("borg-2019", tmp_path / "instances.csv.gz")) == [("7-3", 10.0, None, requests)]


def test_azure_2019(tmp_path):
    (tmp_path / "vmtable.csv").write_bytes(
        lines("a/1,s,d,300,900,9,3,7,Delay-insensitive,2,4", "b2,s,d,0,2591700,9,3,7,Unknown,>24,>64")
    )
    (tmp_path / "nodes.yaml").write_text(NODES_YAML)
    found = read_trace("azure-2019", tmp_path / "vmtable.csv", tmp_path / "nodes.yaml")
    assert arrived(found) == [
        ("vm-b2", 0.0, None, {"cpu": "32000m", "memory": str(128 * GIB)}),
        ("vm-a-1", 300.0, 600.0, {"cpu": "2000m", "memory": str(4 * GIB)}),
    ]
    assert found.arrivals[1].pod.labels["category"] == "Delay-insensitive"


def test_azure_2020(tmp_path):
    with closing(sqlite3.connect(tmp_path / "packing.sqlite")) as base:
        base.executescript(
            "CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime);"
            "CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic);"
            "INSERT INTO vm VALUES (1, 7, 1, 0, -2.5, 1.0), (2, 7, 2, 1, 0.5, NULL), (3, 8, 3, 0, 0.25, 1);"
            "INSERT INTO vmType VALUES (0, 1, 4, 0.125, 0.25, 0, 0, 0), (1, 2, 4, 0.5, 0.5, 0, 0, 0), (2, 3, 9, 1, 1, 0, 0, 0);"
        )
    found = read_trace("azure-2020", tmp_path / "packing.sqlite")
    assert arrived(found) == [
        ("vm-1", 0.0, 86400.0, {"cpu": "8000m", "memory": str(128 * GIB)}),
        ("vm-2", 43200.0, None, {"cpu": "32000m", "memory": str(256 * GIB)}),
    ]
    assert [one.pod.spec.priority for one in found.arrivals] == [1000, 0]
    assert any("1 requests of types" in note for note in found.notes)


def test_alibaba_2018(tmp_path):
    (tmp_path / "batch_task.csv").write_bytes(
        lines("M1,2,j_1,1,Terminated,100,130,50,0.5", "R2_1,1,j_1,1,Running,140,0,100,1", "x,1,j_2,1,Waiting,0,0,,")
    )
    (tmp_path / "machine_meta.csv").write_bytes(lines("m_1,0,1,2,96,100,USING", "m_1,50,1,2,96,100,USING"))
    found = read_trace("alibaba-2018", tmp_path / "batch_task.csv", tmp_path / "machine_meta.csv")
    half = {"cpu": "500m", "memory": str(GIB // 2)}
    assert arrived(found) == [
        ("j-1-m1", 100.0, 30.0, half), ("j-1-m1.1", 100.0, 30.0, half),
        ("j-1-r2-1", 140.0, None, {"cpu": "1000m", "memory": str(GIB)}),
    ]  # fmt: skip
    assert machines(found) == {"m-1": {"cpu": "96000m", "memory": str(100 * GIB), "pods": "110"}}
    assert any("1 tasks without a start" in note for note in found.notes)


def test_alibaba_2020(tmp_path):
    (tmp_path / "task.csv").write_bytes(
        lines(
            "j,ps,1.0,Terminated,1000.0,1060.0,600.0,2.0,,",
            "j,worker,2.0,Running,1010.0,,400.0,4.0,50.0,T4",
            "k,x,1.0,Waiting,,,1,1,1,",
        )
    )
    (tmp_path / "spec.csv").write_bytes(lines("m,T4,96,512,2", "c,CPU,96,512,0"))
    found = read_trace("alibaba-2020", tmp_path / "task.csv", tmp_path / "spec.csv")
    worker = {"cpu": "4000m", "memory": str(4 * GIB), "alibabacloud.com/gpu-milli": "500"}
    assert arrived(found) == [
        ("j-ps", 0.0, 60.0, {"cpu": "6000m", "memory": str(2 * GIB)}),
        ("j-worker", 10.0, None, worker), ("j-worker.1", 10.0, None, worker),
    ]  # fmt: skip
    assert machines(found)["m"]["alibabacloud.com/gpu-milli"] == "2000"
    assert "alibabacloud.com/gpu-milli" not in machines(found)["c"]


def test_philly(tmp_path):
    def job(name, submitted, *attempts):
        made = [
            {
                "start_time": start,
                "end_time": end,
                "detail": [{"ip": ip, "gpus": [f"gpu{n}" for n in range(count)]} for ip, count in at],
            }
            for start, end, at in attempts
        ]
        return {"status": "Pass", "vc": "v", "jobid": name, "user": "u", "submitted_time": submitted, "attempts": made}

    jobs = [
        job("application_1_2", "2017-10-07 01:11:40", ("2017-10-07 01:12:00", "2017-10-07 01:13:00", [("m1", 8), ("m2", 2)]),
            ("2017-10-07 01:14:00", "2017-10-07 01:14:30", [("m3", 8), ("m4", 2)])),
        job("running", "2017-10-07 01:11:30", ("2017-10-07 01:12:00", None, [("m1", 1)])),
        job("never", "2017-10-07 01:11:30"),
    ]  # fmt: skip
    (tmp_path / "log").write_text(json.dumps(jobs))
    (tmp_path / "list").write_bytes(lines("machineId,number of GPUs, single GPU mem", "m31,8, 24GB"))
    found = read_trace("philly", tmp_path / "log", tmp_path / "list")
    assert [(name, time_s, duration, asked["nvidia.com/gpu"]) for name, time_s, duration, asked in arrived(found)] == [
        ("running", 0.0, None, "1"), ("application-1-2", 10.0, 90.0, "8"), ("application-1-2.1", 10.0, 90.0, "2"),
    ]  # fmt: skip
    assert machines(found)["m31"]["nvidia.com/gpu"] == "8"
    assert any("1 jobs that were never placed" in note for note in found.notes)


def test_helios(tmp_path):
    header = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    (tmp_path / "log.csv").write_bytes(
        lines(
            header,
            "2,u,v,0,4,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0",
            "1,u,v,17,40,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0",
        )
    )
    (tmp_path / "gpus.csv").write_bytes(lines("date,v,total", "2020-09-01,8,12", "2020-09-02,8,20"))
    found = read_trace("helios", tmp_path / "log.csv", tmp_path / "gpus.csv")
    assert arrived(found) == [
        ("job-1", 0.0, 36848.0, {"cpu": "20000m", "memory": "0", "nvidia.com/gpu": "9"}),
        ("job-1.1", 0.0, 36848.0, {"cpu": "20000m", "memory": "0", "nvidia.com/gpu": "8"}),
        ("job-2", 26.0, 249.0, {"cpu": "4000m", "memory": "0"}),
    ]
    assert [one["nvidia.com/gpu"] for one in machines(found).values()] == ["8"] * 3


def test_acme(tmp_path):
    head = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue"
    (tmp_path / "trace.csv").write_bytes(
        lines(
            head,
            "a1,u1,2,16.0,256,Pretrain,COMPLETED,2023-05-01 00:00:10+08:00,,,3600.0,0",
            "a2,u2,1,0.0,4,Other,FAILED,2023-05-01 00:00:00+08:00,,,60,0",
        )
    )
    found = read_trace("acme", tmp_path / "trace.csv")
    assert arrived(found) == [
        ("job-a2", 0.0, 60.0, {"cpu": "4000m", "memory": "0"}),
        ("job-a1", 10.0, 3600.0, {"cpu": "128000m", "memory": "0", "nvidia.com/gpu": "8"}),
        ("job-a1.1", 10.0, 3600.0, {"cpu": "128000m", "memory": "0", "nvidia.com/gpu": "8"}),
    ]
    assert [one.gang for one in found.arrivals] == [0, 2, 2]
    assert found.arrivals[1].pod.labels == {"user": "u1", "type": "Pretrain"}
    assert len(found.nodes) == 3  # 260 cores at once, on nodes of 128
    (tmp_path / "trace.csv").write_bytes(lines(head, "a1,u1,2,16,256,P,C,2023-05-01 00:00:10,,,3600.0,0"))
    with pytest.raises(InputError, match="a time with its zone"):
        read_trace("acme", tmp_path / "trace.csv")


FAULTS = {  # format, content, what the message says after the file's name
    "no JSON": ("kube-scheduler-simulator", b"{}\n{", ":1: expected time, event"),
    "no time": (
        "kube-scheduler-simulator", lines(record(1, "Add", node("n")).replace("2026-", "x")), ":1: time: expected a time",
    ),
    "no MessagePack": ("simkube", b"\xc1", ": this is no MessagePack"),
    "another map": ("simkube", msgspec.msgpack.encode({"events": 3}), ": events: expected a list"),
    "a short list": ("simkube", msgspec.msgpack.encode([1, 2]), ": this is no trace of SimKube"),
    "a patch without a time": ("kwok", b'{"kind": "ResourcePatch", "method": "create"}', ":1: expected a ResourcePatch"),
    "an unknown type": ("borg-2019", lines(json.dumps(borg(1, "99", 0))), ":1: type: expected 0 to 10"),
    "a text for a number": ("borg-2019", lines(json.dumps({**borg(1, 0, 0), "time": "x"})), ":1: time: expected a number"),
    "a header without a column": ("borg-2019", lines("time,type", "1,2"), ":1: the header lacks collection_id, instance_index"),
    "too few cells": ("azure-2019", b"a,b\n", ":1: expected 11 cells, found 2"),
    "deleted too early": ("azure-2019", lines("a,s,d,300,200,9,3,7,Unknown,2,4"), ":1: vmdeleted: expected no less"),
    "no SQLite": ("azure-2020", b"not a database, but long enough to be one" * 30, ": cannot be read as the SQLite file"),
    "half an instance": ("alibaba-2018", lines("M1,1.5,j,1,T,100,130,50,0.5"), ":1: instance_num: expected a whole number"),
    "a negative amount": ("alibaba-2020", lines("j,ps,1,T,10,20,-5,2,,"), ":1: plan_cpu: expected at least 0"),
    "no list of jobs": ("philly", b"{}", ": this is not a job log of Philly"),
    "no date": (
        "philly", b'[{"jobid": "a", "submitted_time": "now", "attempts": []}]', ": 'now' is not a time such as",
    ),
    "no header": ("helios", lines("1,u,v,1,4,1,FAILED,x,x,x,249,0"), ":1: the header lacks job_id"),
    "an empty file": ("helios", b"", ":1: the file is empty"),
    "no UTF-8": ("alibaba-2018", b"\xff\xfe,1\n", ":1: this is not UTF-8"),
    "damaged gzip": ("alibaba-2018", b"\x1f\x8b\x08garbage", ": this looks like gzip but cannot be decompressed"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_name_their_place(tmp_path, name, content, message):
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(InputError) as fault:
        read_trace(name, path)
    assert str(fault.value).startswith(f"{path}{message}")


def test_unknown_formats_and_missing_files(tmp_path):
    with pytest.raises(InputError, match="nope: no such format of traces; close: openb; the formats are openb, "):
        read_trace("nope", tmp_path)
    with pytest.raises(InputError, match="openb: needs the file of nodes"):
        read_trace("openb", tmp_path / "pods.csv")
    for name in FORMATS:
        with pytest.raises(InputError):
            read_trace(name, tmp_path / "nowhere", None if name != "openb" else tmp_path / "nowhere")
        with pytest.raises(InputError):
            read_trace(name, tmp_path, None if name != "openb" else tmp_path)

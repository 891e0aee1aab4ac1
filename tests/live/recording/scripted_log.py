"""A log whose times and contents are scripted: two nodes, a pod that is bound at 14:00:20, one that stays pending."""

import json

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.recording.log_writer import LogWriter
from moorage.core.engine.facts import Gone, Seen

#: 2026-11-24T14:00:00Z
START_S = 1_795_528_800


def a_node(name, cpu="4", version="1", **labels):
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": version, "labels": labels}
    status = {"allocatable": amounts, "capacity": amounts}
    return decode({"metadata": metadata, "status": status}, Node, "test")


def a_pod(name, cpu="1", node="", version="1", message="", uid="", meta=None, **spec):
    container = {
        "name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}},
        "env": [{"name": "PASSWORD", "value": "hunter2"}], "args": ["--token=hunter2"],
    }  # fmt: skip
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    metadata = {
        "name": name, "namespace": "default", "uid": uid or f"u-{name}", "resourceVersion": version,
        "annotations": {"secret": "hunter2"}, "managedFields": [{"manager": "hunter2"}],
        **(meta or {}),
    }  # fmt: skip
    spec = {"schedulerName": "default-scheduler", "containers": [container], **spec, **({"nodeName": node} if node else {})}
    status = {"phase": "Running" if node else "Pending", "conditions": [condition] if message else []}
    return decode(json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode(), Pod, "test")


class Script:
    """Writes a log; ``at`` sets the seconds since the start."""

    def __init__(self, directory, encoder=None):
        self.now_s = 0.0
        writer = LogWriter(directory)
        clock = LogClock(lambda: round((START_S + self.now_s) * 1e9), lambda: self.now_s, writer.last_at)
        self.recorder = ChangeRecorder(writer, clock, encoder or ObjectEncoder())

    def start(self, *objects):
        for obj in objects:
            self.recorder.observe(Seen(obj))
        self.recorder.start({"server": "https://cluster", "version": "v1.36.2", "release": "1.36.2"})

    def seen(self, second, obj):
        self.now_s = second
        self.recorder.observe(Seen(obj))

    def gone(self, second, obj):
        self.now_s = second
        self.recorder.observe(Gone(obj))

    def close(self):
        self.recorder.close()


def write_log(directory, encoder=None):
    """Write the log of this module."""
    script = Script(directory, encoder)
    script.start(a_node("n1"), a_node("n2", cpu="2"), a_pod("old", cpu="1", node="n1"))
    script.seen(10, a_pod("web", cpu="2"))
    script.seen(20, a_pod("web", cpu="2", node="n1", version="2"))
    script.seen(30, a_pod("big", cpu="100"))
    why = "0/2 nodes are available: 2 Insufficient cpu."
    script.seen(31, a_pod("big", cpu="100", version="2", message=why))
    script.seen(40, a_node("n2", cpu="2", version="2"))
    script.gone(50, a_pod("old", cpu="1", node="n1"))
    script.seen(60, a_node("n3", cpu="8"))
    script.close()
    return directory

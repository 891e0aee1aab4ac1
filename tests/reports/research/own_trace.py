"""A trace of a program: nodes and arrivals as dicts."""

SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}


def jobs():
    nodes = [{"metadata": {"name": name}, "status": {"allocatable": SIZE, "capacity": SIZE}} for name in ("a", "b")]
    gang = [{"time_s": 5, "pod": pod(f"train-{at}"), "duration_s": 60, "job": "train", "gang": 2} for at in range(2)]
    return nodes, [(0.0, pod("first"), 100.0), *gang]

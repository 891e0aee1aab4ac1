"""``moorage simulate`` with Kueue's queues: Jobs wait for quota before their pods are scheduled."""

import json
import shutil
from pathlib import Path

import pytest

TEAMS = Path(__file__).parents[3] / "examples" / "batch-queues"


@pytest.fixture
def teams(tmp_path):
    """The example, with its queues in a folder of their own."""
    for name in ("nodes", "jobs", "queues"):
        folder = tmp_path / ("queues" if name == "queues" else "cluster")
        folder.mkdir(exist_ok=True)
        shutil.copy(TEAMS / f"{name}.yaml", folder)
    return tmp_path


def states(text):
    _, _, rest = text.partition("STATE\n")
    rows = [line.split(maxsplit=4) for line in rest.split("\n\n")[0].splitlines()]
    return {f"{row[0]}/{row[1]}": row[4] for row in rows}


@pytest.mark.slow
def test_jobs_get_quota_before_nodes(moorage):
    ran = moorage("simulate", "-f", TEAMS, "-q")
    assert ran.status == 2, ran.err
    assert states(ran.out) == {
        "research/Job/train": "admitted, 1 without a node",
        "vision/Job/label": "admitted",
        "speech/Job/transcribe": "admitted",
        "vision/Job/sweep": "waiting",
    }
    assert "nvidia.com/gpu in flavor a100, 12 more needed" in ran.out


@pytest.mark.slow
def test_queues_of_a_file_are_those_of_the_cluster(moorage, teams):
    whole = moorage("simulate", "-f", TEAMS, "-q")
    apart = moorage("simulate", "-f", teams / "cluster", "--kueue", teams / "queues" / "queues.yaml", "-q")
    assert (apart.status, apart.out) == (whole.status, whole.out)


def test_without_queues_nothing_waits_in_one(moorage, teams):
    for more in (("-f", TEAMS, "--kueue", "off"), ("-f", teams / "cluster")):
        ran = moorage("simulate", *more, "-q")
        assert "CLUSTERQUEUE" not in ran.out
        assert "Waiting for quota" not in ran.out


def test_documents_have_a_note_for_each_job_that_waits(moorage):
    notes = json.loads(moorage("simulate", "-f", TEAMS, "-q", "-o", "json").out)["notes"]
    [note] = [note["text"] for note in notes if note["kind"] == "Kueue"]
    assert note.startswith(
        "vision/Job/sweep waits for quota: couldn't assign flavors to pod set main: insufficient unused quota"
    )


def test_an_evicted_job_loses_its_pods(moorage, teams):
    """``vision`` takes its GPUs back from a Job of ``research`` that runs on them."""
    docs = (teams / "cluster" / "jobs.yaml").read_text()
    condition = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    held = {"name": "main", "count": 3, "flavors": {"cpu": "a100", "nvidia.com/gpu": "a100"}}
    held["resourceUsage"] = {"cpu": "24", "nvidia.com/gpu": "12"}
    container = {"name": "main", "resources": {"requests": {"cpu": "8", "nvidia.com/gpu": "4"}}}
    pods = [{"name": "main", "count": 3, "template": {"spec": {"containers": [container]}}}]
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "job-train-1", "namespace": "research", "ownerReferences": [{"kind": "Job", "name": "train"}]},
        "spec": {"queueName": "jobs", "podSets": pods},
        "status": {"admission": {"clusterQueue": "research", "podSetAssignments": [held]}, "conditions": [condition]},
    }
    (teams / "cluster" / "jobs.yaml").write_text(docs.replace("parallelism: 12", "parallelism: 2"))
    (teams / "cluster" / "workload.json").write_text(json.dumps(workload))
    ran = moorage("simulate", "-f", teams / "cluster", "--kueue", teams / "queues" / "queues.yaml", "-q")
    assert states(ran.out)["research/Job/train"] == "evicted, waiting"
    assert states(ran.out)["vision/Job/label"] == "admitted"


REFUSED = {
    "no queue in the file": ("nodes.yaml", (), "no ClusterQueue found"),
    "no file": ("nothing.yaml", (), "nothing.yaml"),
    "an explanation": ("queues.yaml", ("--explain",), "--kueue FILE excludes"),
}


@pytest.mark.parametrize(("file", "more", "says"), REFUSED.values(), ids=REFUSED)
def test_refuses(moorage, file, more, says):
    ran = moorage("simulate", "-f", TEAMS, "--kueue", TEAMS / file, *more)
    assert ran.status != 0
    assert says in ran.err


def test_quotas_that_cannot_be_are_named_with_their_place(moorage, teams):
    file = teams / "queues" / "queues.yaml"
    file.write_text(file.read_text().replace("nominalQuota: 10", "nominalQuota: -1"))
    ran = moorage("simulate", "-f", teams / "cluster", "--kueue", file)
    assert ran.status == 1
    where = "ClusterQueue research: spec.resourceGroups[0].flavors[0].resources[1].nominalQuota"
    assert f'{where}: Invalid value: "-1": must be greater than or equal to 0' in ran.err


@pytest.mark.parametrize("option", [("--edit", "node/a1 unschedulable=true"), ("--live",)], ids=str)
def test_queues_of_a_file_exclude_changes(moorage, option):
    ran = moorage("simulate", "-f", TEAMS, "--kueue", TEAMS / "queues.yaml", *option)
    assert ran.status == 1
    assert f"--kueue FILE excludes {option[0]}" in ran.err


def test_the_document_has_the_queues(moorage):
    document = json.loads(moorage("simulate", "-f", TEAMS, "-q", "-o", "json").out)
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((TEAMS.parents[1] / "docs/reference/simulation-report.schema.json").read_text())
    jsonschema.validate(document, schema)
    research = next(one for one in document["queues"]["queues"] if one["name"] == "research")
    gpus = next(one for one in research["amounts"] if (one["flavor"], one["resource"]) == ("a100", "nvidia.com/gpu"))
    assert (gpus["nominal"], gpus["used"], gpus["borrowed"], gpus["lent"]) == (10, 12, 2, 0)
    states = {one["object"]: (one["state"], one["withoutNode"]) for one in document["queues"]["workloads"]}
    assert states["Job/train"] == ("Admitted", 1)
    assert states["Job/sweep"] == ("Waiting", 0)


@pytest.mark.slow
def test_the_pods_of_a_trace_share_the_queues(moorage, tmp_path):
    trace = TEAMS.parent / "trace-openb"
    quota = [{"name": "cpu", "nominalQuota": 16}, {"name": "memory", "nominalQuota": "200Gi"}]
    gpus = [{"name": name, "nominalQuota": 4000} for name in ("alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count")]
    documents = [{"kind": "ResourceFlavor", "metadata": {"name": "default"}}]
    for name, selector, share in (("serving", "alibabacloud.com/qosClass=LS", 1), ("batch", "", 3)):
        group = {
            "coveredResources": [one["name"] for one in quota + gpus],
            "flavors": [{"name": "default", "resources": quota + gpus}],
        }
        spec = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": [group]}
        notes = {"moorage.dev/trace-share": str(share), "moorage.dev/trace-selector": selector}
        documents += [
            {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
            {
                "kind": "LocalQueue",
                "metadata": {"name": "jobs", "namespace": name, "annotations": notes},
                "spec": {"clusterQueue": name},
            },
        ]
    for one in documents:
        one["apiVersion"] = "kueue.x-k8s.io/v1beta2"
    file = tmp_path / "queues.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}))
    given = ("simulate", "--trace", "openb", "--pods", trace / "pods.csv", "--nodes", trace / "nodes.csv", "--kueue", file)
    ran = moorage(*given, "-q", "-o", "json")
    workloads = json.loads(ran.out)["queues"]["workloads"]
    assert len(workloads) == 7
    assert {one["state"] for one in workloads} == {"Finished"}
    assert {one["clusterQueue"] for one in workloads} == {"serving", "batch"}
    documents[2]["metadata"]["annotations"]["moorage.dev/trace-share"] = "much"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}))
    ran = moorage(*given)
    assert ran.status == 1
    assert "'much' is no part; use a number such as 1 or 2.5" in ran.err


def test_explain_says_why_a_job_waits(moorage):
    ran = moorage("explain", "workload/sweep", "-f", TEAMS)
    assert ran.status == 2
    assert "vision/Job/sweep waits for quota" in ran.out
    assert "give ClusterQueue vision 12 more nvidia.com/gpu in flavor a100" in ran.out
    ran = moorage("explain", "job/label", "-f", TEAMS, "-o", "json")
    assert (ran.status, json.loads(ran.out)["answer"]["waitsFor"]) == (0, "started")


@pytest.mark.parametrize("name", ["workload/sweep", "job/label", "job/train"])
def test_the_document_about_a_job_has_its_schema(moorage, name):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((TEAMS.parents[1] / "docs/reference/workload.schema.json").read_text())
    jsonschema.validate(json.loads(moorage("explain", name, "-f", TEAMS, "-o", "json").out), schema)


NOT_QUEUED = {
    "no queue": ("workload/sweep", ("jobs.yaml", "nodes.yaml"), "has no ClusterQueue"),
    "no job": ("workload/nothing", ("",), "workload/nothing: no queue has or had a job of this name"),
    "a similar job": ("workload/sweap", ("",), "no queue has or had a job of this name; close: job/sweep"),
}


@pytest.mark.parametrize(("name", "files", "says"), NOT_QUEUED.values(), ids=NOT_QUEUED)
def test_explain_refuses(moorage, name, files, says):
    ran = moorage("explain", name, *(part for file in files for part in ("-f", TEAMS / file)))
    assert ran.status == 1
    assert says in ran.err


@pytest.fixture
def over_time(teams):
    """The example with Jobs that end."""
    jobs = (teams / "cluster" / "jobs.yaml").read_text()
    (teams / "cluster" / "jobs.yaml").write_text(
        jobs.replace("metadata:\n", "metadata:\n  annotations: {moorage.dev/duration: 1h}\n")
    )
    return teams


@pytest.mark.slow
def test_queues_are_compared(moorage, over_time):
    given = ("compare", "-f", over_time / "cluster", "--seeds", "1", "-q")
    queues = over_time / "queues" / "queues.yaml"
    ran = moorage(*given, "--a-kueue", queues, "--b-kueue", queues, "-o", "json")
    assert ran.status == 0, ran.err
    metrics = json.loads(ran.out)["answer"]["metrics"]
    assert {"jobWait.p90", "jobWait.vision.p50", "jobsWaiting", "fairness", "lostHours.nvidia.com/gpu"} <= metrics.keys()
    assert metrics["jobWait.p90"]["difference"] == 0
    ran = moorage(*given, "--b-kueue", queues)
    assert ran.status == 1
    assert "the cluster of A: no ClusterQueue found; give --a-kueue FILE" in ran.err
    ran = moorage(*given, "--a-kueue", queues, "--replace-all")
    assert "--a-kueue and --b-kueue exclude --replace-all" in ran.err


@pytest.mark.slow
def test_quotas_are_swept(moorage, over_time):
    grid = over_time / "grid.yaml"
    parameter = "ClusterQueue/research/nominalQuota/a100/nvidia.com/gpu"
    grid.write_text(
        "clusters: {now: cluster}\nqueues: {now: queues/queues.yaml}\n"
        f"parameters:\n  {parameter}: [2, 10]\nmetrics: [jobWait.research.p90, jobsWaiting]\n"
    )
    ran = moorage("sweep", grid, "--store", over_time / "store", "--processes", "1", "-q", "-o", "json")
    assert ran.status == 0, ran.err
    assert "jobWait.research.p90" in ran.out
    grid.write_text(grid.read_text().replace("queues: {now: queues/queues.yaml}\n", ""))
    ran = moorage("sweep", grid, "--store", over_time / "store", "-q")
    assert f"{parameter} needs queues" in ran.err


@pytest.mark.slow
def test_the_report_has_the_queues_as_they_are(moorage):
    ran = moorage("report", "-f", TEAMS, "-q", "-o", "json")
    queues = json.loads(ran.out)["answer"]["queues"]
    assert {one["state"] for one in queues["workloads"]} == {"Waiting"}
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((TEAMS.parents[1] / "docs/reference/overview.schema.json").read_text())
    jsonschema.validate(json.loads(ran.out), schema)
    out = moorage("report", "-f", TEAMS, "-q").out
    assert out.startswith("No pod is pending, 4 workloads wait in queues; 3 of 3 nodes take pods:")
    assert "CLUSTERQUEUE" in out


def test_the_report_can_play_the_queues(moorage):
    ran = moorage("report", "-f", TEAMS, "--play", "-q", "-o", "json")
    found = json.loads(ran.out)["answer"]["queues"]
    schema = json.loads((TEAMS.parents[1] / "docs/reference/overview.schema.json").read_text())
    pytest.importorskip("jsonschema").validate(json.loads(ran.out), schema)
    assert [(one["name"], one["parent"]) for one in found["cohorts"]] == [("company", "")]
    assert {one["object"]: one["held"] for one in found["workloads"]} == {
        "Job/train": [[0.0, None]],
        "Job/label": [[0.0, None]],
        "Job/transcribe": [[0.0, None]],
        "Job/sweep": [],
    }
    page = moorage("report", "-f", TEAMS, "--play", "-q", "-o", "html").out
    assert '"cohorts"' in page


def test_without_queues_there_is_nothing_to_play(moorage, tmp_path):
    (tmp_path / "node.json").write_text(
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}}'
    )
    ran = moorage("report", "-f", tmp_path, "--play", "-q")
    assert ran.status == 1
    assert "--play: the input has no ClusterQueue" in ran.err

"""When a schedule is due, and what a cron job does then."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.cron import CronError, parse_schedule, zone_named
from moorage.api.documents.served_kinds import served
from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.rules.workloads.cron_job import CronJobs
from moorage.rules.workloads.job import Jobs

DUE = {  # schedule, after, next
    "every minute": ("* * * * *", "2026-03-04 05:06:07", "2026-03-04 05:07:00"),
    "not the very time": ("6 5 * * *", "2026-03-04 05:06:00", "2026-03-05 05:06:00"),
    "steps": ("*/15 * * * *", "2026-03-04 05:16:00", "2026-03-04 05:30:00"),
    "a step from a value on": ("50/5 * * * *", "2026-03-04 05:00:00", "2026-03-04 05:50:00"),
    "names": ("0 9 * MAR-may mon", "2026-01-01 00:00:00", "2026-03-02 09:00:00"),
    "either day is enough": ("0 0 13 * 5", "2026-03-01 00:00:00", "2026-03-06 00:00:00"),
    "a day and any weekday": ("0 0 13 * *", "2026-03-01 00:00:00", "2026-03-13 00:00:00"),
    "a question mark is a star": ("0 0 ? * 5", "2026-03-01 00:00:00", "2026-03-06 00:00:00"),
    "stars with steps count": ("0 0 */2 * 5", "2026-03-03 12:00:00", "2026-03-05 00:00:00"),
    "leap day": ("0 0 29 2 *", "2026-03-01 00:00:00", "2028-02-29 00:00:00"),
    "never": ("0 0 30 2 *", "2026-03-01 00:00:00", None),
    "a word": ("@weekly", "2026-03-04 00:00:00", "2026-03-08 00:00:00"),
    "every so often": ("@every 1h30m", "2026-03-04 00:00:00", "2026-03-04 01:30:00"),
    "in any unit of Go": ("@every 90000ms", "2026-03-04 00:00:00", "2026-03-04 00:01:30"),
    "end of the year": ("59 23 31 12 *", "2026-12-31 23:59:00", "2027-12-31 23:59:00"),
}


def epoch(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("schedule", "after", "expected"), DUE.values(), ids=DUE)
def test_the_next_scheduled_time(schedule, after, expected):
    found = parse_schedule(schedule).after(epoch(after))
    assert found == (None if expected is None else epoch(expected))


ZONES = {  # schedule, after, next; all in New York, whose clocks go forward on 8 March and back on 1 November 2026
    "an offset": ("0 9 * * *", "2026-01-01T00:00-05:00", "2026-01-01T09:00-05:00"),
    "the hour left out": ("30 2 * * *", "2026-03-07T03:00-05:00", "2026-03-09T02:30-04:00"),
    "the hour after it": ("0 3 * * *", "2026-03-07T04:00-05:00", "2026-03-08T03:00-04:00"),
    "every hour over it": ("0 * * * *", "2026-03-08T01:00-05:00", "2026-03-08T03:00-04:00"),
    "the hour that comes twice": ("30 1 * * *", "2026-11-01T01:30-04:00", "2026-11-01T01:30-05:00"),
    "the day after": ("30 1 * * *", "2026-11-01T01:30-05:00", "2026-11-02T01:30-05:00"),
}


@pytest.mark.parametrize(("schedule", "after", "expected"), ZONES.values(), ids=ZONES)
def test_the_next_scheduled_time_in_a_time_zone(schedule, after, expected):
    read = parse_schedule(schedule, ZoneInfo("America/New_York"))
    assert datetime.fromtimestamp(read.after(datetime.fromisoformat(after).timestamp()), UTC) == datetime.fromisoformat(
        expected
    )
    prefixed = parse_schedule(f"TZ=America/New_York {schedule}")
    assert prefixed.after(epoch("2026-06-01 00:00:00")) == read.after(epoch("2026-06-01 00:00:00"))


REFUSED = {
    "too few": ("* * * *", "expected exactly 5 fields, found 4"),
    "too large": ("60 * * * *", r"end of range \(60\) above maximum \(59\): 60"),
    "too small": ("* * 0 * *", r"beginning of range \(0\) below minimum \(1\)"),
    "backwards": ("9-5 * * * *", r"beginning of range \(9\) beyond end of range \(5\)"),
    "no step": ("*/0 * * * *", "step of range should be a positive number"),
    "no number": ("x * * * *", "failed to parse int from x"),
    "no word": ("@sometimes", "unrecognized descriptor: @sometimes"),
    "no duration": ("@every now", "failed to parse duration"),
    "a duration beyond 64 bits": (f"@every {'9' * 100_000}h", "failed to parse duration"),
    "digits without a unit": (f"@every {'9' * 100_000}", "failed to parse duration"),
    "no zone": ("TZ=Nowhere/Land * * * * *", "unknown time zone Nowhere/Land"),
}


@pytest.mark.parametrize(("schedule", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read(schedule, said):
    with pytest.raises(CronError, match=said):
        parse_schedule(schedule)


def field(low, high):
    value = st.integers(low, high)
    step = st.sampled_from(["", "/2", "/7"])
    span = st.builds(lambda a, b, s: f"{min(a, b)}-{max(a, b)}{s}", value, value, step)
    return st.one_of(st.just("*"), value.map(str), span, st.lists(value.map(str), min_size=2, max_size=3).map(",".join))


def takes(text, value, low, high):
    for part in text.split(","):
        bounds, _, step = part.partition("/")
        first, _, last = bounds.partition("-")
        begin, end = (low, high) if first == "*" else (int(first), int(last or (high if step else first)))
        if begin <= value <= end and (value - begin) % int(step or 1) == 0:
            return True
    return False


def is_due(fields, moment):
    minute, hour, day, month, weekday = fields
    of_month, of_week = takes(day, moment.day, 1, 31), takes(weekday, moment.isoweekday() % 7, 0, 6)
    either = of_month and of_week if "*" in (day, weekday) else of_month or of_week
    return (
        takes(minute, moment.minute, 0, 59) and takes(hour, moment.hour, 0, 23) and takes(month, moment.month, 1, 12) and either
    )


@settings(max_examples=30, deadline=None)
@given(
    fields=st.tuples(field(0, 59), field(0, 23), field(1, 31), st.just("*"), field(0, 6)),
    start=st.integers(int(epoch("2026-01-01 00:00:00")), int(epoch("2026-12-01 00:00:00"))),
)
def test_the_schedule_agrees_with_a_scan_of_every_minute(fields, start):
    start = datetime.fromtimestamp(start, UTC)
    moment = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    end = moment + timedelta(days=4)
    while moment < end and not is_due(fields, moment):
        moment += timedelta(minutes=1)
    found = parse_schedule(" ".join(fields)).after(start.timestamp())
    if moment < end:
        assert found == moment.timestamp()
    else:
        assert found is None or found >= end.timestamp()


def test_zones():
    assert zone_named(None) is UTC
    assert zone_named("Etc/UTC") == ZoneInfo("Etc/UTC")


# -- the controller -----------------------------------------------------------------------------------------------------

CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "*/5 * * * *"
  jobTemplate:
    metadata: {labels: {app: tick}}
    spec:
      template:
        metadata: {annotations: {moorage.dev/run-seconds: "%d", moorage.dev/exit-code: "%d"}}
        spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"""


@pytest.fixture
def cluster(lab):
    made = lab(CronJobs(), Jobs(), GarbageCollector())
    yield made
    assert made.reports == []


def start(cluster, lasts=10, code=0, **spec):
    document = yaml.safe_load(CRON % (lasts, code))
    document["spec"] |= spec
    cluster.apply(document)
    cluster.settle()


def told(cluster, reason):
    return [one["message"] for one in cluster.all("events") if one["reason"] == reason]


def test_a_job_is_created_at_each_scheduled_time(cluster):
    start(cluster)  # at 15:06:40
    assert cluster.all("jobs") == []
    cluster.advance(201)
    (job,) = cluster.all("jobs")
    assert job["metadata"]["name"] == f"tick-{int(cluster.now) // 60}"
    assert job["metadata"]["labels"]["app"] == "tick"
    assert job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2025-06-15T15:10:00Z"
    status = cluster.get("cronjobs", "tick")["status"]
    assert status["lastScheduleTime"] == "2025-06-15T15:10:00Z"
    assert [one["name"] for one in status["active"]] == [job["metadata"]["name"]]
    cluster.advance(15)
    status = cluster.get("cronjobs", "tick")["status"]
    assert "active" not in status
    assert status["lastSuccessfulTime"] > status["lastScheduleTime"]
    assert told(cluster, "SawCompletedJob") == [f"Saw completed job: {job['metadata']['name']}, condition: Complete"]


def test_only_the_last_successful_jobs_are_kept(cluster):
    start(cluster)
    cluster.advance(3600)
    assert len(cluster.all("jobs")) == 3
    assert len(told(cluster, "SuccessfulCreate")) > 12
    assert len(cluster.all("pods")) == 3


def test_the_failed_jobs_history_limit_applies(cluster):
    start(
        cluster,
        code=1,
        jobTemplate={"spec": {"backoffLimit": 0, **yaml.safe_load(CRON % (10, 1))["spec"]["jobTemplate"]["spec"]}},
    )
    cluster.advance(3600)
    assert len(cluster.all("jobs")) == 1


POLICIES = {"Allow": 2, "Forbid": 1, "Replace": 1}


@pytest.mark.parametrize(("policy", "running"), POLICIES.items())
def test_the_concurrency_policy_applies_while_a_job_runs(cluster, policy, running):
    start(cluster, lasts=10_000, concurrencyPolicy=policy)
    cluster.advance(201)
    first = cluster.names("jobs")
    cluster.advance(300)
    assert len(cluster.all("jobs")) == running
    assert (cluster.names("jobs") == first) is (policy == "Forbid")
    if policy == "Forbid":
        assert "Not starting job because prior execution is running" in told(cluster, "JobAlreadyActive")[0]


def test_a_suspended_cron_job_starts_only_the_last_missed_job(cluster):
    start(cluster, suspend=True)
    cluster.advance(2000)
    assert cluster.all("jobs") == []
    cluster.patch("cronjobs", "tick", suspend=False)
    cluster.settle()
    (job,) = cluster.all("jobs")
    assert job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2025-06-15T15:40:00Z"


def test_a_job_past_its_starting_deadline_is_skipped(cluster):
    start(cluster, suspend=True, startingDeadlineSeconds=30)
    cluster.advance(240)
    cluster.patch("cronjobs", "tick", suspend=False)
    cluster.settle()
    assert cluster.all("jobs") == []
    cluster.advance(300)
    assert len(cluster.all("jobs")) == 1


def test_a_missing_active_job_is_reported_and_removed(cluster):
    start(cluster, lasts=10_000, concurrencyPolicy="Forbid")
    cluster.advance(201)
    (name,) = cluster.names("jobs")
    cluster.delete("jobs", name)
    cluster.settle()
    assert "active" not in cluster.get("cronjobs", "tick")["status"]
    assert told(cluster, "MissingJob") == [f"Active job went missing: {name}"]
    cluster.advance(300)
    assert len(cluster.all("jobs")) == 1
    assert told(cluster, "UnexpectedJob") == []


def test_a_terminating_job_counts_as_active(cluster):
    start(cluster, lasts=10_000, concurrencyPolicy="Forbid")
    cluster.advance(201)
    (name,) = cluster.names("jobs")
    cluster.edit("jobs", name, lambda job: job["metadata"].update(finalizers=["example.com/keep"]))
    cluster.delete("jobs", name)
    cluster.advance(300)
    assert cluster.names("jobs") == [name]
    assert [one["name"] for one in cluster.get("cronjobs", "tick")["status"]["active"]] == [name]
    assert told(cluster, "MissingJob") == []


def test_an_unexpected_job_is_reported_and_not_counted(cluster):
    start(cluster, lasts=10_000, concurrencyPolicy="Forbid")
    cron = cluster.get("cronjobs", "tick")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": cron["metadata"]["uid"], "controller": True}
    made = {"name": "by-hand", "ownerReferences": [owner]}
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "spec": cron["spec"]["jobTemplate"]["spec"]})
    cluster.settle()
    assert "active" not in (cluster.get("cronjobs", "tick").get("status") or {})
    assert told(cluster, "UnexpectedJob")[0] == "Saw a job that the controller did not create or forgot: by-hand"
    cluster.advance(201)
    assert len(cluster.all("jobs")) == 2


def test_too_many_missed_start_times_are_reported(cluster):
    start(cluster, suspend=True, schedule="* * * * *")
    long_ago = {"lastScheduleTime": "2024-01-01T00:00:00Z"}
    cluster.edit("cronjobs", "tick", lambda cron: cron.update(status=long_ago), subresource="status")
    cluster.patch("cronjobs", "tick", suspend=False)
    cluster.settle()
    (job,) = cluster.all("jobs")
    due = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert cluster.now - datetime.fromisoformat(due).timestamp() < 60
    assert told(cluster, "TooManyMissedTimes")


def test_an_invalid_schedule_is_reported(cluster):
    document = yaml.safe_load(CRON % (10, 0))  # only a dump has one; a new one would be refused
    document["spec"]["schedule"] = "61 * * * *"
    document["metadata"]["namespace"] = "default"
    cluster.store.adopt(served("cronjobs", "batch"), document)
    cluster.settle()
    cluster.advance(600)
    assert cluster.all("jobs") == []
    (text,) = set(told(cluster, "UnparseableSchedule"))
    assert text.startswith('unparseable schedule: "61 * * * *" : end of range')

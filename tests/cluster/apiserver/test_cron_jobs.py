"""Schedules and time zones of cron jobs, with kube-apiserver's messages for invalid ones."""

import pytest

from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError

CRON_JOBS = served("cronjobs", "batch")
UNKNOWN = "unknown time zone {}"
EXPLICIT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
REFUSED = {
    "bad-time-zone": UNKNOWN, "Europe/Atlantis": UNKNOWN, "../UTC": UNKNOWN, "-UTC": UNKNOWN, "Europe/": UNKNOWN,
    "Local": EXPLICIT, "": "timeZone must be nil or non-empty string",
}  # fmt: skip


INT = 'failed to parse int from {0}: strconv.Atoi: parsing "{0}": invalid syntax'
UNREADABLE = {
    "bad": "expected exactly 5 fields, found 1: [bad]",
    "* * * * * *": "expected exactly 5 fields, found 6: [* * * * * *]",
    "x * * * *": INT.format("x"),
    "-1 * * * *": INT.format(""),
    "1/x * * * *": INT.format("x"),
    "* * * foo *": INT.format("foo"),
    "*/0 * * * *": "step of range should be a positive number: */0",
    "1-2-3 * * * *": "too many hyphens: 1-2-3",
    "1/2/3 * * * *": "too many slashes: 1/2/3",
    "70 * * * *": "end of range (70) above maximum (59): 70",
    "5-1 * * * *": "beginning of range (5) beyond end of range (1): 5-1",
    "* * 0 * *": "beginning of range (0) below minimum (1): 0",
    "@foo": "unrecognized descriptor: @foo",
    "@every x": 'failed to parse duration @every x: time: invalid duration "x"',
    "TZ=UTC * * * * *": "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
}


def cron_job(zone, schedule="* * * * *"):
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}


@pytest.mark.parametrize(("zone", "why"), REFUSED.items())
def test_an_unknown_time_zone_is_rejected(store, zone, why):
    with pytest.raises(ApiError) as refused:
        store.create(CRON_JOBS, "default", cron_job(zone))
    assert refused.value.code == 422
    assert f'spec.timeZone: Invalid value: "{zone}": {why.format(zone)}' in str(refused.value)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5"])
def test_a_known_time_zone_is_accepted(store, zone):
    store.create(CRON_JOBS, "default", cron_job(zone))


@pytest.mark.parametrize(("schedule", "why"), UNREADABLE.items())
def test_an_invalid_schedule_is_rejected(store, schedule, why):
    with pytest.raises(ApiError) as refused:
        store.create(CRON_JOBS, "default", cron_job(None, schedule))
    assert refused.value.code == 422
    assert str(refused.value).endswith(f'spec.schedule: Invalid value: "{schedule}": {why}')


@pytest.mark.parametrize("schedule", ["@hourly", "@every 1h30m", "*/15 9-17 * JAN-mar MON-FRI", "*-5 * * * ?"])
def test_a_valid_schedule_is_accepted(store, schedule):
    store.create(CRON_JOBS, "default", cron_job("UTC", schedule))


def test_a_time_zone_in_a_schedule_may_stay_but_not_be_added(store):
    held = store.adopt(CRON_JOBS, {**cron_job(None, "TZ=UTC 1 * * * *"), "metadata": {"name": "old", "namespace": "default"}})
    document = held.document()
    document["spec"]["schedule"] = "TZ=UTC 2 * * * *"
    store.update(CRON_JOBS, "default", "old", document)
    store.create(CRON_JOBS, "default", cron_job(None))
    with pytest.raises(ApiError, match="use timeZone field instead"):
        store.update(CRON_JOBS, "default", "tick", cron_job(None, "TZ=UTC 1 * * * *"))
    with pytest.raises(ApiError, match="cannot use both timeZone field and TZ or CRON_TZ in schedule"):
        store.update(CRON_JOBS, "default", "old", cron_job("UTC", "TZ=UTC 1 * * * *") | {"metadata": {"name": "old"}})

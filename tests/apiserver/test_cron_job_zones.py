"""Cron jobs' time zones: the names there are, and the words for those there are not."""

import pytest

from moorage.apiserver.kinds import served
from moorage.apiserver.statuses import ApiError

CRON_JOBS = served("cronjobs", "batch")
UNKNOWN = "unknown time zone {}"
EXPLICIT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
REFUSED = {
    "bad-time-zone": UNKNOWN, "Europe/Atlantis": UNKNOWN, "../UTC": UNKNOWN, "-UTC": UNKNOWN, "Europe/": UNKNOWN,
    "Local": EXPLICIT, "": "timeZone must be nil or non-empty string",
}  # fmt: skip


def cron_job(zone):
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"schedule": "* * * * *", "timeZone": zone, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}


@pytest.mark.parametrize(("zone", "why"), REFUSED.items())
def test_a_zone_that_there_is_not_is_refused(store, zone, why):
    with pytest.raises(ApiError) as refused:
        store.create(CRON_JOBS, "default", cron_job(zone))
    assert refused.value.code == 422
    assert f'spec.timeZone: Invalid value: "{zone}": {why.format(zone)}' in str(refused.value)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5"])
def test_a_zone_that_there_is_is_taken(store, zone):
    store.create(CRON_JOBS, "default", cron_job(zone))

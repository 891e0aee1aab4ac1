"""What is served, and to whom: every path, over a real socket, with a cluster that knows who may."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from moorage.api.documents.http_messages import User
from moorage.errors import ClusterError, InputError
from moorage.live.runtime.attempt_metrics import SILENT
from moorage.live.runtime.leader_election import Election, LeaseRecord, Timing
from moorage.live.server.authentication import RequestAuthenticator
from moorage.live.server.authorization import AccessDecision, OpenPaths, RequestAuthorizer
from moorage.live.server.endpoints import Page, ProgramInfo, Served, accepted, make_app, stacks
from moorage.live.server.health import Check, Health, watchdog
from moorage.live.server.plugin_metrics import CounterVec, MetricRegistry, Spec

USERS = {"admin": User("admin", ("system:masters",)), "eve": User("eve"), "reader": User("reader")}


class Reviews:
    async def review(self, token):
        if token == "broken":
            raise ClusterError("down")
        return USERS.get(token)

    async def access(self, caller, access):
        if access.path == "/broken":
            raise ClusterError("down")
        return AccessDecision(caller.name == "reader" and access.path == "/metrics", "no rule")


class Lines:
    def __init__(self):
        self.lines = []

    def shows(self, level):
        return True

    def info(self, level, message, **facts):
        self.lines.append((message, facts))

    def warning(self, message, **facts):
        self.lines.append((message, facts))

    def error(self, error, message, **facts):
        self.lines.append((message, {"err": str(error), **facts}))


class World:
    """A served scheduler whose state tests change as they like."""

    def __init__(self):
        self.log = Lines()
        self.wrong = None
        self.leads = True
        self.verbosity = 0
        counter = CounterVec(Spec("things_total", "Things."))
        counter.inc()
        counted = MetricRegistry([counter])
        checks = {"healthz": [], "livez": [], "readyz": [Check("shutdown", lambda: None), Check("sync", lambda: self.wrong)]}
        self.health = Health(checks, self.log)
        self.served = Served(
            health=self.health,
            metrics=counted.with_others(),
            counted=counted,
            slis=MetricRegistry(self.health.families).with_others(),
            pod_metrics=lambda: counted.with_others() if self.leads else None,
            configuration=self.configuration,
            flags={"v": "2", "config": ""},
            program=ProgramInfo("moorage v1", "1.36", "3.11", datetime(2026, 1, 1, tzinfo=UTC), ("/healthz", "/metrics")),
            set_verbosity=self.set_verbosity,
            explain=self.explain,
        )

    async def explain(self, query):
        status = 429 if query.get("pod") == "busy" else 200
        return Page(f"explained {query.get('pod')}\n", status=status)

    def configuration(self):
        if self.wrong == "configuration":
            raise RuntimeError("broken page")
        return {"kind": "KubeSchedulerConfiguration"}

    def set_verbosity(self, level):
        if level < 0:
            raise InputError("-v: too low")
        self.verbosity = level

    def ask(self, path, token="admin", method="GET", headers=(), data=None, served=None):
        """Send a request; return its status, its text, and its headers."""

        async def main():
            reviews = Reviews()
            who = RequestAuthenticator(reviews.review, lambda: 0.0)
            may = RequestAuthorizer(reviews, lambda: 0.0, OpenPaths(("/healthz", "/readyz", "/livez")))
            server = TestServer(make_app(served or self.served, who, may, self.log))
            await server.start_server()
            try:
                sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **dict(headers)}
                async with (
                    ClientSession() as session,
                    session.request(method, server.make_url(path), headers=sent, data=data, allow_redirects=False) as answer,
                ):
                    return answer.status, await answer.text(), answer.headers
            finally:
                await server.close()

        return asyncio.run(main())


@pytest.fixture
def world():
    return World()


PAGES = {  # path, status, what is in the answer
    "health": ("/healthz", 200, "ok"),
    "life": ("/livez", 200, "ok"),
    "readiness": ("/readyz", 200, "ok"),
    "readiness, check by check": ("/readyz?verbose", 200, "[+]shutdown ok\n[+]sync ok\nreadyz check passed\n"),
    "readiness but for a check": ("/readyz?verbose&exclude=sync", 200, "[+]sync excluded: ok"),
    "readiness but for no check": ("/readyz?verbose&exclude=x", 200, 'cannot be excluded: no matches for "x"'),
    "one check": ("/readyz/shutdown", 200, "ok"),
    "the check of health without a lease": ("/healthz/ping", 200, "ok"),
    "no check": ("/readyz/x", 404, "404 page not found"),
    "metrics": ("/metrics", 200, "things_total 1.0"),
    "metrics of pods": ("/metrics/resources", 200, "things_total 1.0"),
    "configuration": ("/configz", 200, '{"componentconfig": {"kind": "KubeSchedulerConfiguration"}}'),
    "flags": ("/flagz", 200, "\nconfig=\nv=2\n"),
    "state": ("/statusz", 200, "Emulation version:  1.36\nPaths:  /healthz /metrics\n"),
    "profiles": ("/debug/pprof/", 200, "goroutine"),
    "profiles without a slash": ("/debug/pprof", 302, ""),
    "what tasks do": ("/debug/pprof/goroutine", 200, "tasks\n"),
    "what is alive": ("/debug/pprof/heap?debug=1", 200, "objects"),
    "a profile of no time": ("/debug/pprof/profile?seconds=0", 400, "seconds must be a number above 0"),
    "a profile of odd time": ("/debug/pprof/profile?seconds=nan", 400, "seconds must be a number above 0"),
    "a profile that cannot be had": ("/debug/pprof/mutex", 404, "not available"),
    "an explanation": ("/debug/explain?pod=a/b", 200, "explained a/b"),
    "too many explanations": ("/debug/explain?pod=busy", 429, "explained busy"),
    "flags that can be set": ("/debug/flags", 200, "v"),
    "nothing": ("/nope", 404, "404 page not found"),
    "the root": ("/", 404, "404 page not found"),
    "nothing below a page": ("/metrics/x", 404, "404 page not found"),
    "a path out of the tree": ("/metrics/%2e%2e/%2e%2e/etc/passwd", 404, "404 page not found"),
}


@pytest.mark.parametrize(("path", "status", "text"), PAGES.values(), ids=PAGES)
def test_pages(world, path, status, text):
    found, said, headers = world.ask(path)
    assert found == status, said
    assert text in said
    assert headers["Cache-Control"] == "no-cache, private"
    assert headers["X-Content-Type-Options"] == "nosniff"


FORBIDDEN = 'forbidden: User "system:anonymous"'
ENTRY = {  # path, token, status, message
    "probes are open to all": ("/healthz", None, 200, None),
    "single checks are not": ("/readyz/sync", None, 403, f'{FORBIDDEN} cannot get path "/readyz/sync": no rule'),
    "metrics are not": ("/metrics", None, 403, f'{FORBIDDEN} cannot get path "/metrics": no rule'),
    "explanations are for readers of metrics": ("/debug/explain?pod=a", "reader", 200, None),
    "not for others": ("/debug/explain", "eve", 403, 'forbidden: User "eve" cannot get path "/debug/explain": no rule'),
    "nor for users without rights": ("/metrics", "eve", 403, 'forbidden: User "eve" cannot get path "/metrics": no rule'),
    "what is not there is not told": ("/nope", "eve", 403, 'forbidden: User "eve" cannot get path "/nope": no rule'),
    "an unknown token": ("/metrics", "zzz", 401, "Unauthorized"),
    "not even at open paths": ("/healthz", "zzz", 401, "Unauthorized"),
    "a token that cannot be reviewed": ("/metrics", "broken", 401, "Unauthorized"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "token", "status", "message"), ENTRY.values(), ids=ENTRY)
def test_entry(world, path, token, status, message):
    found, said, _ = world.ask(path, token)
    assert found == status
    if message is not None:
        body = json.loads(said)
        assert (body["kind"], body["message"], body["code"]) == ("Status", message, status)


def test_an_unreachable_cluster_denies_every_caller(world):
    status, said, _ = world.ask("/broken", "eve")
    assert status == 500
    assert "the access review failed" in said


def test_no_token_is_ever_logged(world):
    for token in ("zzz-secret", "broken"):
        world.ask("/metrics", token)
    assert world.log.lines
    assert not any("secret" in repr(line) or "Bearer" in repr(line) for line in world.log.lines)


def test_requests_are_logged(world):
    world.ask("/readyz?exclude=secret")
    ((message, facts),) = world.log.lines
    assert message == "HTTP"
    assert (facts["verb"], facts["URI"], facts["resp"]) == ("GET", "/readyz", 200)


def test_a_failed_probe_names_the_check_without_the_reason(world):
    world.wrong = "3 kinds are missing"
    status, said, _ = world.ask("/readyz", None)
    assert status == 500
    assert said == "[+]shutdown ok\n[-]sync failed: reason withheld\nreadyz check failed\n"
    assert world.ask("/readyz/sync")[:2] == (500, "internal server error: 3 kinds are missing\n")
    assert any("3 kinds are missing" in str(facts) for _, facts in world.log.lines)
    slis = world.ask("/metrics/slis")[1]
    assert 'kubernetes_healthcheck{name="sync",type="readyz"} 0.0' in slis
    assert 'kubernetes_healthchecks_total{name="sync",status="error",type="readyz"} 1.0' in slis


def test_only_the_leader_serves_pod_resource_metrics(world):
    world.leads = False
    assert world.ask("/metrics/resources")[:2] == (200, "")


def test_metrics_can_be_reset(world):
    assert world.ask("/metrics", method="DELETE")[:2] == (200, "metrics reset\n")
    assert "things_total 0.0" in world.ask("/metrics")[1]
    assert world.ask("/metrics", "eve", method="DELETE")[0] == 403


VERBOSITY = {  # method, body, status, answer, level afterwards
    "a level": ("PUT", "4", 200, "successfully set klog.logging.verbosity to 4\n", 4),
    "no number": ("PUT", "x", 400, 'failed set klog.logging.verbosity x: strconv.ParseInt: parsing "x": invalid syntax\n', 0),
    "an invalid level": ("PUT", "-1", 400, "failed set klog.logging.verbosity -1: -v: too low\n", 0),
    "only asked": ("GET", None, 406, "unsupported http method\n", 0),
}


@pytest.mark.parametrize(("method", "body", "status", "answer", "level"), VERBOSITY.values(), ids=VERBOSITY)
def test_the_log_verbosity_can_be_raised(world, method, body, status, answer, level):
    assert world.ask("/debug/flags/v", method=method, data=body)[:2] == (status, answer)
    assert world.verbosity == level


def test_a_too_long_body_is_rejected(world):
    assert world.ask("/debug/flags/v", method="PUT", data="9" * 10_000)[0] == 413


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_other_writes_are_rejected(world, method):
    assert world.ask("/configz", method=method)[0] == 405


def test_profiling_can_be_switched_off(world):
    served = replace(world.served, profiling=False)
    for path in ("/debug/pprof/", "/debug/pprof/goroutine", "/debug/flags"):
        assert world.ask(path, served=served)[0] == 404
    assert world.ask("/debug/flags/v", method="PUT", data="4", served=served)[0] == 405


def test_a_failing_page_does_not_affect_others(world):
    world.wrong = "configuration"
    status, said, _ = world.ask("/configz")
    assert status == 500
    assert json.loads(said)["reason"] == "InternalError"
    assert "broken page" not in said


JSON = "application/json;as={};v=v1beta1;g=config.k8s.io"


def test_pages_are_served_as_objects_on_request(world):
    flags = json.loads(world.ask("/flagz", headers=[("Accept", JSON.format("Flagz"))])[1])
    assert (flags["kind"], flags["apiVersion"], flags["flags"]) == ("Flagz", "config.k8s.io/v1beta1", {"config": "", "v": "2"})
    state = json.loads(world.ask("/statusz", headers=[("Accept", JSON.format("Statusz"))])[1])
    assert (state["startTime"], state["emulationVersion"]) == ("2026-01-01T00:00:00Z", "1.36")
    assert state["uptimeSeconds"] > 0
    assert world.ask("/statusz", headers=[("Accept", JSON.format("Statusz"))])[2]["Content-Type"] == (
        "application/json;g=config.k8s.io;v=v1beta1;as=Statusz"
    )
    kind = "application/yaml;as=Flagz;v=v1beta1;g=config.k8s.io"
    assert yaml.safe_load(world.ask("/flagz", headers=[("Accept", kind)])[1])["flags"] == {"config": "", "v": "2"}


def test_unsupported_media_types_are_rejected_as_by_kube_scheduler(world):
    status, said, sent = world.ask("/statusz", headers=[("Accept", "image/png")])
    assert (status, sent["Content-Type"]) == (406, "application/json")
    assert json.loads(said) == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotAcceptable", "code": 406,
        "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
    }  # fmt: skip


ACCEPT = {
    "nothing": ("", ("text/plain", "")),
    "anything": ("*/*", ("text/plain", "")),
    "text": ("text/plain;q=0.5", ("text/plain", "")),
    "an object": (JSON.format("Flagz"), ("application/json", "v1beta1")),
    "an older object": ("application/json;as=Flagz;v=v1alpha1;g=config.k8s.io", ("application/json", "v1alpha1")),
    "JSON of no kind": ("application/json", None),
    "an unknown version": ("application/json;as=Flagz;v=v9;g=config.k8s.io", None),
    "JSON of no kind, or anything": ("application/json, */*", ("text/plain", "")),
    "an object in YAML": ("application/yaml;as=Flagz;v=v1beta1;g=config.k8s.io", ("application/yaml", "v1beta1")),
}


@pytest.mark.parametrize(("accept", "form"), ACCEPT.values(), ids=ACCEPT)
def test_accept(accept, form):
    assert accepted(accept, "Flagz") == form


def test_openmetrics_are_served_on_request(world):
    headers = [("Accept", "application/openmetrics-text;version=1.0.0")]
    status, said, sent = world.ask("/metrics", headers=headers)
    assert (status, said.endswith("# EOF\n")) == (200, True)
    assert sent["Content-Type"].startswith("application/openmetrics-text")


def test_asyncio_tasks_are_listed_by_name():
    async def main():
        task = asyncio.create_task(asyncio.sleep(10), name="a sleeper")
        await asyncio.sleep(0)
        text = stacks()
        task.cancel()
        return text

    assert "task a sleeper" in asyncio.run(main())


# -- the watchdog -------------------------------------------------------------------------------------------------------

WATCHED = {  # holder, seconds since the last renewal, healthy?
    "a leader that renews": ("me", 1, True),
    "a leader whose lease just ran out": ("me", 34, True),
    "a leader that should be dead": ("me", 36, False),
    "a standby": ("another", 1000, True),
}


@pytest.mark.parametrize(("holder", "since", "healthy"), WATCHED.values(), ids=WATCHED)
def test_the_watchdog_fails_for_a_leader_that_does_not_renew(holder, since, healthy):
    election = Election("me", Timing(15, 10, 2))
    record = LeaseRecord(holder, 15, "", "")
    if holder == "me":
        election.wrote(record, 100.0)
    else:
        election.seen(record, 100.0)
    check = watchdog(election, "kube-scheduler", lambda: 100.0 + since)
    assert check.name == "leaderElection"
    assert (check.ask() is None) is healthy
    if not healthy:
        assert check.ask() == "failed election to renew leadership on lease kube-scheduler"
    assert Health({"healthz": [check]}, SILENT).report("healthz", verbose=False, exclude=()).healthy is healthy

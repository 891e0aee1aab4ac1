"""The audit log: events equal those of kube-apiserver; policies; lines that cannot be written.

``audit_events.json`` holds requests with the events that kube-apiserver 1.37.2 (its plugin ServiceAccount off) records
by ``audit_policy.yaml``, without what differs from run to run. Each request has its name in the header ``Audit-ID``.
"""

import asyncio
import errno
import json
import re
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from moorage.api.documents.audit_notes import AuditNotes
from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.admission_configuration import read_admission_configuration
from moorage.cluster.apiserver.http.audit_log import AuditLog
from moorage.cluster.apiserver.http.audit_policy import METADATA
from moorage.cluster.apiserver.http.audit_policy_file import read_audit_policy
from moorage.cluster.apiserver.http.audited_requests import AuditedRequest, audited_request
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.errors import ConfigError, InputError

HERE = Path(__file__).parent
STEPS = json.loads((HERE / "audit_events.json").read_text())
ADMISSION = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    exemptions: {usernames: [exempt], namespaces: [free], runtimeClasses: [open]}
"""
VARIES = ("requestReceivedTimestamp", "stageTimestamp", "uid")
OF_METADATA = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "deletionTimestamp")
OF_ACCOUNTS = ("serviceAccount", "serviceAccountName", "volumes", "volumeMounts")
ADMIN = User("moorage-admin", ("system:masters",))


class Written:
    """A log in memory, and what it reports."""

    def __init__(self, policy=METADATA):
        self.lines, self.reports = [], []
        self.log = AuditLog(policy, self._write, self.reports.append)

    def _write(self, line):
        self.lines.append(line)
        return len(line)

    @property
    def events(self):
        return [json.loads(line) for line in b"".join(self.lines).splitlines()]


def plain(value):
    """Return an event without what differs from run to run, or because of service accounts."""
    if isinstance(value, dict):
        value = {name: plain(one) for name, one in value.items() if name not in (*VARIES, *OF_ACCOUNTS)}
        if isinstance(metadata := value.get("metadata"), dict):
            value["metadata"] = {name: one for name, one in metadata.items() if name not in OF_METADATA}
        return value
    if isinstance(value, list):
        return [plain(one) for one in value]
    return "gen-X" if isinstance(value, str) and re.fullmatch("gen-[a-z0-9]+", value) else value


def without_empty_status(event):
    """Leave out the empty status that kube-apiserver shows of a review or scale which a client sends."""
    sent = event.get("requestObject")
    if isinstance(sent, dict) and sent.get("kind") in {"Scale", "SelfSubjectAccessReview"}:
        sent.pop("status", None)
    return event


def record(steps, written, store, tokens=None):
    async def run():
        guard = Authenticator({"t": ADMIN} if tokens is None else tokens)
        async with serving(store, guard, audit=written.log) as port, aiohttp.ClientSession() as http:
            for step in steps:
                headers = {"Authorization": "Bearer t", "User-Agent": "audit-probe", "Audit-ID": step["name"]}
                headers |= {"Content-Type": step["form"]} if step.get("body") is not None else {}
                data = None if step.get("body") is None else json.dumps(step["body"])
                url = URL(f"http://127.0.0.1:{port}{step['path']}", encoded=True)
                headers |= step.get("headers", {})
                async with http.request(step.get("method", "GET"), url, data=data, headers=headers) as answer:
                    assert answer.headers["Audit-ID"] == step["name"]
                    await answer.read()

    asyncio.run(run())


@pytest.mark.slow
def test_events_equal_those_of_kube_apiserver(tmp_path):
    (tmp_path / "admission.yaml").write_text(ADMISSION)
    store = open_store(admission=read_admission_configuration(tmp_path / "admission.yaml"), server_version="v1.37.2")
    store.needs_accounts = False
    written = Written(read_audit_policy(HERE / "audit_policy.yaml", pytest.fail))
    record(STEPS, written, store)
    found = {}
    for event in written.events:
        found.setdefault(event["auditID"], []).append(plain(event))
    assert written.reports == []
    for step in STEPS:
        wanted = [without_empty_status(plain(event)) for event in step["events"]]
        assert found.get(step["name"], []) == wanted, step["name"]


def test_without_a_policy_the_metadata_of_each_request_is_recorded_once():
    written = Written()
    record([{"name": "a", "path": "/api/v1/nodes"}, {"name": "b", "path": "/version"}], written, open_store())
    shown = [(one["auditID"], one["level"], one["stage"], one["user"]["username"]) for one in written.events]
    assert shown == [
        ("a", "Metadata", "ResponseComplete", "moorage-admin"),
        ("b", "Metadata", "ResponseComplete", "moorage-admin"),
    ]


def test_requests_without_a_credential_are_recorded():
    written = Written()
    steps = [{"name": "a", "path": "/readyz", "headers": {"Authorization": ""}}]
    steps.append({"name": "b", "path": "/api/v1/nodes", "headers": {"Host": "elsewhere"}})
    record(steps, written, open_store())
    first, second = written.events
    assert first["user"] == {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
    assert (second["stage"], second["user"], second["responseStatus"]["code"]) == ("ResponseStarted", {}, 403)


class Site:
    """A web site that only makes requests in a user's name."""

    def connect(self, perform):
        self.perform = perform

    def serves(self, path):
        return path.startswith("/ui/")

    def end(self):
        pass


def test_requests_that_a_page_makes_in_the_name_of_a_user_are_recorded():
    written, site = Written(), Site()

    async def run():
        async with serving(open_store(), Authenticator({}), site=site, audit=written.log):
            for user in (ADMIN, User("jane")):
                asked = HTTPRequest("DELETE", "/api/v1/nodes/n", {}, "", "application/json", b"", user, "moorage-ui")
                with pytest.raises(ApiError):
                    await site.perform(asked)

    asyncio.run(run())
    shown = [(one["user"]["username"], one["objectRef"]["name"], one["responseStatus"]["code"]) for one in written.events]
    assert shown == [("moorage-admin", "n", 404), ("jane", "n", 403)]
    assert [one["annotations"]["authorization.k8s.io/decision"] for one in written.events] == ["allow", "forbid"]


def test_texts_that_are_not_utf_8_do_not_break_a_line():
    written = Written()
    written.log.record({"userAgent": "caf\udce9", "more": ["\udcff"], "code": 200})
    assert written.events == [{"userAgent": "caf\ufffd", "more": ["\ufffd"], "code": 200}]


# -- policies ----------------------------------------------------------------------------------------------------------

REQUESTS = [
    ("GET", "/version", {}, AuditedRequest("get", "/version")),
    ("POST", "/apis/apps/v1", {}, AuditedRequest("post", "/apis/apps/v1")),
    ("GET", "/api/v1/nodes/", {}, AuditedRequest("list", "/api/v1/nodes/", True, "", "v1", "", "nodes")),
    ("HEAD", "/api/v1/nodes/n", {}, AuditedRequest("get", "/api/v1/nodes/n", True, "", "v1", "", "nodes", "n")),
    ("GET", "/api/v1/pods", {"watch": "1"}, AuditedRequest("watch", "/api/v1/pods", True, "", "v1", "", "pods")),
    ("GET", "/api/v1/pods", {"watch": "false"}, AuditedRequest("list", "/api/v1/pods", True, "", "v1", "", "pods")),
    ("GET", "/api/v1/watch/pods", {}, AuditedRequest("watch", "/api/v1/watch/pods", True, "", "v1", "", "pods")),
    ("GET", "/api/v1/watch", {}, AuditedRequest("get", "/api/v1/watch")),
    ("DELETE", "/api/v1/pods", {}, AuditedRequest("deletecollection", "/api/v1/pods", True, "", "v1", "", "pods")),
    (
        "GET", "/api/v1/pods", {"fieldSelector": "spec.nodeName=x,metadata.name==p"},
        AuditedRequest("list", "/api/v1/pods", True, "", "v1", "", "pods", "p"),
    ),
    (
        "GET", "/api/v1/pods", {"fieldSelector": "metadata.name!=p"},
        AuditedRequest("list", "/api/v1/pods", True, "", "v1", "", "pods"),
    ),
    (
        "PUT", "/api/v1/namespaces/n/finalize", {},
        AuditedRequest("update", "/api/v1/namespaces/n/finalize", True, "", "v1", "n", "namespaces", "n", "finalize"),
    ),
    (
        "PATCH", "/apis/apps/v1/namespaces/n/deployments/d/scale", {},
        AuditedRequest(
            "patch", "/apis/apps/v1/namespaces/n/deployments/d/scale", True, "apps", "v1", "n", "deployments", "d", "scale"
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "query", "wanted"), REQUESTS)
def test_attributes_of_requests(method, path, query, wanted):
    assert audited_request(method, path, query) == wanted


def policy(tmp_path, text, warn=pytest.fail):
    (tmp_path / "policy.yaml").write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}")
    return read_audit_policy(tmp_path / "policy.yaml", warn)


JANE = User("jane", ("dev",))
POD = ("GET", "/api/v1/namespaces/n/pods/p/log", {})
RULES = [
    ("users: [jane]", POD, True),
    ("users: [john]", POD, False),
    ("userGroups: [ops, dev]", POD, True),
    ("userGroups: [ops]", POD, False),
    ("verbs: [get]", POD, True),
    ("verbs: [list]", POD, False),
    ("namespaces: ['n']", POD, True),
    ("namespaces: ['']", POD, False),
    ("namespaces: ['']", ("GET", "/api/v1/nodes", {}), True),
    ("namespaces: ['']", ("GET", "/version", {}), False),
    ("resources: [{group: ''}]", POD, True),
    ("resources: [{group: apps}]", POD, False),
    ("resources: [{resources: [pods]}]", POD, False),
    ("resources: [{resources: [pods/log]}]", POD, True),
    ("resources: [{resources: ['*/log']}]", POD, True),
    ("resources: [{resources: ['pods/*']}]", POD, True),
    ("resources: [{resources: ['pods/*']}]", ("GET", "/api/v1/pods", {}), True),
    ("resources: [{group: '*', resources: ['*'], resourceNames: [p]}]", POD, True),
    ("resources: [{resources: ['*'], resourceNames: [q]}]", POD, False),
    ("nonResourceURLs: ['/version']", POD, False),
    ("nonResourceURLs: ['/ver*']", ("GET", "/version", {}), True),
    ("nonResourceURLs: ['*']", ("GET", "/version", {}), True),
    ("nonResourceURLs: ['/v']", ("GET", "/version", {}), False),
]


@pytest.mark.parametrize(("rule", "request_", "fits"), RULES)
def test_rules(tmp_path, rule, request_, fits):
    found = policy(tmp_path, f"rules: [{{level: Request, {rule}}}, {{level: Metadata}}]")
    assert found.recording(JANE, audited_request(*request_)).level == ("Request" if fits else "Metadata")


def test_an_unauthenticated_request_fits_no_rule_about_users(tmp_path):
    found = policy(tmp_path, "rules: [{level: Request, users: [jane]}, {level: Request, userGroups: [dev]}]")
    assert found.recording(None, audited_request(*POD)).level == "None"


def test_stages_and_managed_fields_of_a_rule_and_its_policy(tmp_path):
    text = "omitStages: [RequestReceived]\nomitManagedFields: true\nrules: [{level: Metadata, omitStages: [Panic], %s}]"
    found = policy(tmp_path, text % "omitManagedFields: null").recording(JANE, audited_request(*POD))
    assert found == ("Metadata", {"RequestReceived", "Panic"}, True)
    assert not policy(tmp_path, text % "omitManagedFields: false").recording(JANE, audited_request(*POD)).omits_managed_fields


FAULTS = [
    ("rules: []", "rules: Required value: a policy without rules records nothing"),
    ("rules: [{}]", "rules[0].level: Required value"),
    ("rules: [{level: All}]", 'rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request"'),
    ("rules: [{level: None, nonResourceURLs: [a]}]", "must begin with a '/' character"),
    ("rules: [{level: None, nonResourceURLs: ['/*/a']}]", "wildcards '*' must be the final character"),
    ("rules: [{level: None, nonResourceURLs: [/a], namespaces: [a]}]", "rules cannot apply to both"),
    ("rules: [{level: None, resources: [{group: apps/v1}]}]", "rules[0].resources[0].group: Invalid value"),
    ("rules: [{level: None, resources: [{resourceNames: [a]}]}]", "using resourceNames requires at least one resource"),
    ("rules: [{level: None, omitStages: [End]}]", 'rules[0].omitStages[0]: Invalid value: "End": allowed stages are'),
    ("rules: [{level: 1}]", "Expected `str`, got `int` - at `$.rules[0].level`"),
]


@pytest.mark.parametrize(("text", "why"), FAULTS)
def test_faults_of_policies(tmp_path, text, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        policy(tmp_path, text)


def test_files_that_are_no_policies(tmp_path):
    with pytest.raises(InputError, match=r"--audit-policy-file: .*: No such file or directory"):
        read_audit_policy(tmp_path / "none", pytest.fail)
    (tmp_path / "policy.yaml").write_text("apiVersion: audit.k8s.io/v1beta1\nkind: Policies\nrules: [{level: None}]")
    with pytest.raises(ConfigError, match=r'(?s)supported values: "audit.k8s.io/v1".*supported values: "Policy"'):
        read_audit_policy(tmp_path / "policy.yaml", pytest.fail)


def test_unknown_fields_of_a_policy_are_reported_and_ignored(tmp_path):
    reports = []
    policy(tmp_path, "rules: [{level: None, user: [jane], resources: [{kinds: [a]}]}]\nomit: a", reports.append)
    assert [line.partition("unknown field ")[2] for line in reports] == [
        "omit is ignored", "rules[0].user is ignored", "rules[0].resources[0].kinds is ignored",
    ]  # fmt: skip


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_full_disk_loses_lines_and_not_the_server():
    left, reports, content = [30], [], bytearray()

    def write(line):
        taken = line[: left[0]]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= len(taken)
        content.extend(taken)
        return len(taken)

    log = AuditLog(METADATA, write, reports.append, where="audit.log")
    log.record({"a": "b" * 10})
    log.record({"a": "c" * 20})
    log.record({"a": "d"})
    left[0] = 100
    log.record({"a": "e"})
    log.close()
    assert [line for line in bytes(content).split(b"\n") if line.endswith(b"}")] == [b'{"a":"bbbbbbbbbb"}', b'{"a":"e"}']
    assert log.lost == 2
    assert reports == [
        "--audit-log-path: an audit event could not be written to audit.log: No space left on device; the server goes on",
        "--audit-log-path: 2 audit events could not be written to audit.log",
    ]


def test_a_log_appends_to_its_file(tmp_path):
    path = tmp_path / "logs" / "audit.log"
    for name in "ab":
        log = AuditLog.opened(str(path), METADATA, pytest.fail)
        log.record({"name": name})
        log.close()
    assert path.read_text() == '{"name":"a"}\n{"name":"b"}\n'
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match=r"--audit-log-path: .* cannot be written: Is a directory"):
        AuditLog.opened(str(tmp_path), METADATA, pytest.fail)


def test_managed_fields_are_left_out_of_objects_lists_and_tables():
    notes = AuditNotes(keeps_response=True, omits_managed_fields=True)
    held = {"metadata": {"name": "a", "managedFields": [{}]}}
    for document in (held, {"items": [held]}, {"rows": [{"object": held}]}):
        body = json.dumps(document).encode()
        notes.answered(lambda body=body: body, b"")
        assert "managedFields" not in notes.response.decode()
        assert '"name":"a"' in notes.response.decode()

from __future__ import annotations

import re
from itertools import product

import pytest

from moorage.api import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
LONG_LABEL, LONG_NAME = "must be no more than 63 characters", "must be no more than 253 characters"

LABELS = {
    "a": [], "0": [], "a-b": [], "a--b": [], "x" * 63: [],
    "": [LABEL], "A": [LABEL], "-a": [LABEL], "a-": [LABEL], "a_b": [LABEL], "a\n": [LABEL], "ä": [LABEL], "\u0430": [LABEL],
    "a b": [LABEL],
    "a.b": ["must not contain dots"], "x" * 64: [LONG_LABEL],
    "a." * 32 + "b": [LONG_LABEL, "must not contain dots"], "X" * 64: [LONG_LABEL, LABEL],
}  # fmt: skip
SUBDOMAINS = {
    "a": [], "a.b.c": [], "1.2": [], "a-b.c": [], "x" * 253: [],
    "": [SUBDOMAIN], "A": [SUBDOMAIN], "a..b": [SUBDOMAIN], ".a": [SUBDOMAIN], "a.": [SUBDOMAIN], "a/b": [SUBDOMAIN],
    "%2e%2e": [SUBDOMAIN], "a\x00": [SUBDOMAIN], "a\u202e": [SUBDOMAIN], "😀": [SUBDOMAIN], "a\n": [SUBDOMAIN],
    "x" * 254: [LONG_NAME], "é" * 127: [LONG_NAME, SUBDOMAIN], "é" * 126: [SUBDOMAIN],
}  # fmt: skip
KEYS = {
    "a": [], "A_b.c-9": [], "example.com/a": [], "x" * 63: [], "a.b/" + "x" * 63: [],
    "": ["name part must be non-empty", f"name part {KEY}"],
    "-a": [f"name part {KEY}"], "a\n": [f"name part {KEY}"], "ä": [f"name part {KEY}"], "a b": [f"name part {KEY}"],
    "x" * 64: ["name part must be no more than 63 bytes"],
    "/a": ["prefix part must be non-empty"],
    "a/": ["name part must be non-empty", f"name part {KEY}"],
    "A/b": [f"prefix part {SUBDOMAIN}"],
    "x" * 254 + "/b": ["prefix part must be no more than 253 bytes"],
    "a/b/c": [f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"],
}  # fmt: skip
VALUES = {
    "": [], "a": [], "A_b.c-9": [], "x" * 63: [], "1": [],
    "x" * 64: ["must be no more than 63 bytes"], "-" * 64: ["must be no more than 63 bytes", VALUE],
    "-": [VALUE], "a/b": [VALUE], "a\n": [VALUE], " ": [VALUE], "ä": [VALUE],
}  # fmt: skip
CHECKS = [
    *((names.check_dns1123_label, text, faults) for text, faults in LABELS.items()),
    *((names.check_dns1123_subdomain, text, faults) for text, faults in SUBDOMAINS.items()),
    *((names.check_qualified_name, text, faults) for text, faults in KEYS.items()),
    *((names.check_label_value, text, faults) for text, faults in VALUES.items()),
]


@pytest.mark.parametrize(
    ("check", "text", "faults"), CHECKS, ids=[f"{check.__name__} {ascii(text)[:20]}" for check, text, _ in CHECKS]
)
def test_reports_faults(check, text, faults):
    assert check(text) == faults


def test_the_caller_may_modify_the_returned_list():
    names.check_qualified_name("-x").clear()
    assert names.check_qualified_name("-x") != []


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a." * 500_000, "-" * 1_000_000, "/" * 1_000_000])
def test_long_names_are_checked_in_bounded_time(text):
    for check in (
        names.check_dns1123_label,
        names.check_dns1123_subdomain,
        names.check_qualified_name,
        names.check_label_value,
    ):
        assert check(text)


RESOURCES = {  # name: (extended, native, prefixed native, huge pages, attachable volumes, scalar)
    "cpu": (False, True, False, False, False, False),
    "memory": (False, True, False, False, False, False),
    "ephemeral-storage": (False, True, False, False, False, False),
    "pods": (False, True, False, False, False, False),
    "foo": (False, True, False, False, False, False),
    "hugepages-2Mi": (False, True, False, True, False, True),
    "attachable-volumes-aws-ebs": (False, True, False, False, True, True),
    "kubernetes.io/foo": (False, True, True, False, False, True),
    "node.kubernetes.io/foo": (False, True, True, False, False, True),
    "nvidia.com/gpu": (True, False, False, False, False, True),
    "requests.nvidia.com/gpu": (False, False, False, False, False, False),
    "requests.foo": (False, True, False, False, False, False),
    "example.com/": (False, False, False, False, False, False),
    "a/b/c": (False, False, False, False, False, False),
    "Example.com/a": (False, False, False, False, False, False),
    "e" * 245 + "/a": (False, False, False, False, False, False),
    "e" * 244 + "/a": (True, False, False, False, False, True),
}


@pytest.mark.parametrize(("name", "families"), RESOURCES.items(), ids=[name[:30] for name in RESOURCES])
def test_classifies_resource_names(name, families):
    assert families == (
        names.is_extended_resource_name(name),
        names.is_native_resource(name),
        names.is_prefixed_native_resource(name),
        names.is_hugepage_resource(name),
        names.is_attachable_volume_resource(name),
        names.is_scalar_resource_name(name),
    )


def test_fast_patterns_match_what_those_of_the_messages_match():
    patterns = {names._is_dns_label: names._DNS_LABEL, names._is_dns1035_label: names._DNS1035_LABEL}
    patterns |= {names._is_dns_subdomain: names._DNS_SUBDOMAIN}
    texts = ["".join(letters) for length in range(6) for letters in product("a1-.A", repeat=length)]
    for fast, pattern in patterns.items():
        assert [text for text in texts if bool(fast(text)) != bool(re.fullmatch(pattern, text))] == []

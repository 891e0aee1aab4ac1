"""Checks of webhook configurations, API services, flow schemas and certificate requests that tables of rules name.

Source  kubernetes, pkg/apis/{admissionregistration,certificates,flowcontrol}/validation; apiserver, pkg/util/webhook;
        kube-aggregator, pkg/apis/apiregistration/validation
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from moorage.api.cel.types import BOOL
from moorage.api.documents.served_kinds import Document, as_mapping
from moorage.api.names import check_dns1035_label, check_dns1123_label, check_dns1123_subdomain, check_qualified_name
from moorage.api.validation.faults import Faults, invalid, named, required, too_long, unsupported
from moorage.api.validation.rule_checks import check_path_segment
from moorage.api.validation.rule_tables import Holders, check, joined
from moorage.errors import Fault
from moorage.rules.admission.policy_expressions import PolicyError, PolicyTypes


@check("all or some")
def _all_or_some(path: str, values: Sequence[str], of: str, supported: Sequence[str] = ()) -> Iterable[Fault]:
    """Yield the fault of a list with ``*`` and more, or with values that are not ``supported``, if there are such."""
    if "*" in values:
        return (invalid(path, values, f"if '*' is present, must not specify other {of}"),) if len(values) > 1 else ()
    return (unsupported(path, values, supported),) if supported and not {*values} <= {*supported} else ()


@check("given", of_holder=True)
def _given(path: str, value: Any, *_: Any) -> Iterable[Fault]:
    return () if value else (required(path),)


@check("matched resources")
def _matched_resources(path: str, resources: Sequence[str]) -> Faults:
    """Yield the faults of resources with subresources that a webhook or a policy matches."""
    all_of: set[str] = set()
    in_all: set[str] = set()
    ends_plain = False
    for i, one in enumerate(resources):
        resource, slash, part = (one or "").partition("/")
        if not one:
            yield required(f"{path}[{i}]")
            continue
        if not slash:
            ends_plain = one != "*"
            continue
        if resource in all_of:
            yield invalid(f"{path}[{i}]", one, f"if '{resource}/*' is present, must not specify {one}")
        if part in in_all:
            yield invalid(f"{path}[{i}]", one, f"if '*/{part}' is present, must not specify {one}")
        if part == "*":
            all_of.add(resource)
        if resource == "*":
            in_all.add(part)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and ends_plain:
        yield invalid(path, resources, "if '*' is present, must not specify other resources without subresources")


# -- webhooks ----------------------------------------------------------------------------------------------------------

_URL_FORM: Final = "; desired format: https://host[/path]"


@check("name of three parts")
def _three_parts(path: str, name: str) -> Iterable[Fault]:
    if not name:
        return (required(path),)
    if faults := check_dns1123_subdomain(name):
        return (invalid(path, name, ",".join(faults)),)
    why = "should be a domain with at least three segments separated by dots"
    return (invalid(path, name, why),) if name.count(".") < 2 else ()


@check("review versions")
def _review_versions(path: str, versions: Sequence[str]) -> Faults:
    seen: set[str] = set()
    for i, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{path}[{i}]", version, "duplicate version")
            continue
        seen.add(version)
        yield from named(f"{path}[{i}]", version, check_dns1035_label)
    if not seen & {"v1", "v1beta1"}:
        yield invalid(path, versions, "must include at least one of v1, v1beta1")


@check("webhook URL")
def _webhook_url(path: str, text: str) -> Faults:
    try:
        url = urlsplit(text)
        host, user = url.netloc.rpartition("@")[2], url.netloc.rpartition("@")[0]
        _ = url.port
    except ValueError as error:
        yield required(path, f"url must be a valid URL: parse {json.dumps(text)}: {error}{_URL_FORM}")
        return
    if re.search(r"[\x00-\x20\x7f]", text):
        what = (
            "invalid control character in URL" if re.search(r"[\x00-\x1f\x7f]", text) else 'invalid character " " in host name'
        )
        if " " not in text or " " in host:
            yield required(path, f"url must be a valid URL: parse {json.dumps(text)}: net/url: {what}{_URL_FORM}")
            return
    if url.scheme != "https":
        yield invalid(path, url.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not host:
        yield invalid(path, host, f"host must be specified{_URL_FORM}")
    if "@" in url.netloc:
        yield invalid(path, user, "user information is not permitted in the URL")
    if url.fragment:
        yield invalid(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        yield invalid(path, url.query, "query parameters are not permitted in the URL")


@check("webhook path")
def _webhook_path(path: str, text: str) -> Faults:
    if text == "/":
        return
    if text == "//":
        yield invalid(path, text, "segment[0] may not be empty")
        return
    if not text.startswith("/"):
        yield invalid(path, text, "must start with a '/'")
    for i, step in enumerate(text[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(path, text, f"segment[{i}] may not be empty")
        for why in check_dns1123_subdomain(step) if step else ():
            yield invalid(path, text, f"segment[{i}]: {why}")


# -- API services ------------------------------------------------------------------------------------------------------


@check("label with a letter first")
def _dns1035(path: str, value: str) -> Faults:
    return named(path, value, check_dns1035_label)


@check("name of API service", of_holder=True)
def _service_name(_: str, __: Any, spec: Document, up: Holders, *___: Any) -> Faults:
    name = ((up[0] if up is not None else {}).get("metadata") or {}).get("name") or ""
    wanted = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
    if faults := check_path_segment(name):
        yield from (invalid("metadata.name", name, why) for why in faults)
    elif name and name != wanted:
        yield invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: {json.dumps(wanted)}')


@check("amount between", of_holder=True)
def _amount_between(path: str, value: int | None, *rest: Any) -> Iterable[Fault]:
    """Yield the fault of a number outside a range; an absent one is 0."""
    least, most, why = rest[3:]
    return () if least <= (value or 0) <= most else (invalid(path, value or 0, why),)


@check("amount above 0", of_holder=True)
def _amount_above_0(path: str, value: int | None, _: Any, __: Any, ___: Any, why: str) -> Iterable[Fault]:
    return () if (value or 0) > 0 else (invalid(path, value or 0, why),)


@check("size of bundle")
def _bundle(path: str, bundle: str) -> Iterable[Fault]:
    try:
        size = len(base64.b64decode(bundle))
    except binascii.Error:
        size = len(bundle)
    return (invalid(path, f"{size} bytes", "local APIServices may not have a caBundle"),)


# -- flow schemas ------------------------------------------------------------------------------------------------------


@check("distinguisher")
def _distinguisher(path: str, method: Document) -> Iterable[Fault]:
    kind, supported = method.get("type") or "", ("ByNamespace", "ByUser")
    return () if kind in supported else (unsupported(f"{path}.type", {"Type": kind}, supported),)


@check("member namespaces")
def _member_namespaces(path: str, names: Sequence[str]) -> Faults:
    intro = "each member of this list must be '*' or a DNS-1123 label; "
    for i, name in enumerate(names if "*" not in names else ()):
        yield from (invalid(f"{path}[{i}]", name, intro + why) for why in check_dns1123_label(name))


@check("resource paths")
def _resource_paths(path: str, urls: Sequence[str]) -> Faults:
    if "*" in urls:
        return
    for i, url in enumerate(urls):
        if why := _path_fault(url or ""):
            yield invalid(f"{path}[{i}]", url or "", why)


def _path_fault(url: str) -> str:
    """Return what is wrong with the path of something that is no resource, or ""."""
    if url == "/":
        return ""
    for is_wrong, why in (
        (not url, "must not be empty"),
        (not url.startswith("/"), "must start with slash"),
        (" " in url, "must not contain white-space"),
        ("//" in url, "must not contain double slash"),
        (url.count("*") > 1 or ("*" in url and not url.endswith("/*")), "wildcard can only do suffix matching"),
    ):
        if is_wrong:
            return why
    return ""


_MOST_HASH_BITS: Final = 60


@check("hand of queues")
def _hand(path: str, queuing: Mapping[str, int]) -> Iterable[Fault]:
    queues, hand = queuing.get("queues") or 0, queuing.get("handSize") or 0
    if not 0 < hand <= queues or math.ceil(math.log2(queues) * hand) <= _MOST_HASH_BITS:
        return ()
    why = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_MOST_HASH_BITS}"
    return (invalid(f"{path}.handSize", hand, why),)


def _rules_for(*groups: str) -> list[Document]:
    """Return rules for all requests of some groups."""
    every = ["*"]
    return [
        {
            "subjects": [{"kind": "Group", "group": {"name": name}} for name in groups],
            "resourceRules": [
                {"verbs": every, "apiGroups": every, "resources": every, "clusterScope": True, "namespaces": every}
            ],
            "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
        }
    ]


#: Specs that may not change, by name; those of levels but for the field ``exempt``.
_FIXED_LEVELS: Final[Mapping[str, Document]] = {
    "catch-all": {
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}},
    },
    "exempt": {"type": "Exempt"},
}
_FIXED_SCHEMAS: Final[Mapping[str, Document]] = {
    "catch-all": {
        "priorityLevelConfiguration": {"name": "catch-all"},
        "matchingPrecedence": 10000,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": _rules_for("system:unauthenticated", "system:authenticated"),
    },
    "exempt": {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 1,
        "rules": _rules_for("system:masters"),
    },
}


@check("mandatory level")
def _mandatory_level(path: str, level: Document) -> Iterable[Fault]:
    name = level["metadata"]["name"]
    but, given = " except the 'spec.exempt' field" if name == "exempt" else "", as_mapping(level.get("spec"))
    own = {field: value for field, value in given.items() if field != "exempt"} if but else given
    if own == _FIXED_LEVELS.get(name, own):
        return ()
    return (invalid("spec", given, f"spec of '{name}'{but} must equal the fixed value"),)


@check("mandatory schema")
def _mandatory_schema(path: str, schema: Document) -> Iterable[Fault]:
    name, given = schema["metadata"]["name"], as_mapping(schema.get("spec"))
    if given == _FIXED_SCHEMAS.get(name, given):
        return ()
    return (invalid("spec", given, f"spec of '{name}' must equal the fixed value"),)


# -- certificates ------------------------------------------------------------------------------------------------------

_REQUEST: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)


@check("signing request")
def _signing_request(path: str, encoded: str) -> Iterable[Fault]:
    """Yield the fault of a text in base64 that is no certificate request in PEM, or whose signature is wrong."""
    from cryptography import x509  # loaded only where a certificate is read
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        text = base64.b64decode(encoded or "").decode("latin-1")
    except binascii.Error:
        return ()
    block = _REQUEST.search(text)
    if block is None or block[1] != "CERTIFICATE REQUEST":
        return (invalid(path, encoded or None, "PEM block type must be CERTIFICATE REQUEST"),)
    try:
        is_signed = x509.load_pem_x509_csr(block[0].encode()).is_signature_valid
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        return (invalid(path, encoded, str(error)),)
    return () if is_signed else (invalid(path, encoded, "x509: signature verification failed"),)


@check("version of parameters")
def _parameter_version(path: str, text: str) -> Faults:
    group, slash, version = text.rpartition("/")
    if text.count("/") > 1:
        yield invalid(path, text, f"unexpected GroupVersion string: {text}")
        return
    if group and (why := check_dns1123_subdomain(group)):
        yield invalid(path, group, ",".join(why))
    if slash and not version:
        yield invalid(path, text, "version must be specified")
    elif why := check_dns1035_label(version):
        yield invalid(path, version, ",".join(why))


@check("kind of parameters")
def _parameter_kind(path: str, kind: str) -> Iterable[Fault]:
    why = check_dns1035_label(kind.lower())
    return (invalid(path, kind, f"may have mixed case, but should otherwise match: {','.join(why)}"),) if why else ()


@check("annotation keys")
def _annotation_keys(path: str, policy: Document) -> Faults:
    """Yield the faults of the keys of a policy's audit annotations, which get the policy's name as prefix."""
    name = policy["metadata"].get("name") or ""
    for i, one in enumerate((policy.get("spec") or {}).get("auditAnnotations") or ()):
        at, key = joined(path, f"spec.auditAnnotations[{i}].key"), one.get("key") or ""
        yield from named(at, f"{name}/{key}", check_qualified_name)


@check("webhook conditions")
def _webhook_conditions(path: str, webhook: Document) -> Faults:
    """Yield the faults of the match conditions of a webhook that do not compile."""
    types = PolicyTypes({})
    for i, one in enumerate(webhook.get("matchConditions") or ()):
        source = str(one.get("expression") or "").strip()
        if source:
            try:
                types.compiled(source, (BOOL,))
            except PolicyError as error:
                yield invalid(f"{path}.matchConditions[{i}].expression", one["expression"], str(error))


@check("deny or warn")
def _deny_or_warn(path: str, actions: Sequence[str]) -> Iterable[Fault]:
    why = "repeating the same validation failure information in the API response and headers serves no purpose"
    is_wrong = {"Deny", "Warn"} <= {*actions}
    return (invalid(path, actions, f"must not contain both Deny and Warn ({why})"),) if is_wrong else ()


@check("approved or denied")
def _approved(path: str, conditions: Sequence[Document]) -> Faults:
    seen: set[str] = set()
    for kind in (one.get("type") or "" for one in conditions):
        if kind in {"Approved", "Denied"} and {"Approved", "Denied"} - {kind} <= seen:
            yield invalid(path, kind, "Approved and Denied conditions are mutually exclusive")
        seen.add(kind)


@check("issued certificates")
def _issued(path: str, encoded: str) -> Faults:
    """Yield the fault of certificates in base64 that are none in PEM."""
    from cryptography import x509  # loaded only where a certificate is read

    text = base64.b64decode(encoded).decode("utf-8", "replace")
    blocks = [*_PEM_BLOCK.finditer(text)] if text else []
    why = "" if blocks or not text else "must contain at least one CERTIFICATE PEM block"
    for block in blocks:
        if block["kind"] != "CERTIFICATE":
            why = f'only CERTIFICATE PEM blocks are allowed, found "{block["kind"]}"'
        elif ":" in block["body"]:
            why = "no PEM block headers are permitted"
        else:
            try:
                x509.load_pem_x509_certificate(block[0].encode())
            except ValueError as error:
                why = f"x509: malformed certificate: {error}"
        if why:
            break
    if why:
        yield invalid(path, "<certificate data>", why)


_PEM_BLOCK: Final = re.compile(r"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----\r?\n(?P<body>.*?)-----END (?P=kind)-----", re.DOTALL)


@check("signer name")
def signer_name_faults(path: str, name: str) -> Faults:
    """Yield the faults of a signer's name: a domain of two parts or more, and a path."""
    if not name:
        yield required(path)
        return
    segments = name.split("/")
    if len(segments) != 2:
        yield invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
        return
    domain, rest = segments
    if len(domain) > 253:
        yield too_long(path, 253)
    yield from _label_faults(path, domain, check_dns1123_label)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _label_faults(path, rest, check_dns1123_subdomain)
    if len(name) > 571:
        yield too_long(path, 571)


def _label_faults(path: str, text: str, names: Any) -> Faults:
    """Yield the faults of the first faulty part between dots."""
    for label in text.split("."):
        if faults := names(label):
            yield from (invalid(path, text, f"validating label {json.dumps(label)}: {why}") for why in faults)
            return


_OMITTED: Final = "<value omitted>"
_MOST_BUNDLE: Final = 1 << 20


@check("trust bundle")
def _trust_bundle(path: str, text: str) -> Faults:
    if len(text) > _MOST_BUNDLE:
        yield too_long(path, _MOST_BUNDLE)
        return
    seen: dict[bytes, list[int]] = {}
    faults = [*_entry_faults(path, text, seen)]
    yield from faults
    if not faults and not seen:
        yield invalid(path, _OMITTED, "at least one trust anchor must be provided")
    for places in seen.values():
        if not faults and len(places) > 1:
            yield invalid(path, _OMITTED, f"duplicate trust anchor (indices [{' '.join(map(str, places))}])")


def _entry_faults(path: str, text: str, seen: dict[bytes, list[int]]) -> Faults:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    for i, block in enumerate(_REQUEST.finditer(text)):
        if block[1] != "CERTIFICATE":
            yield invalid(path, _OMITTED, f"entry {i} has bad block type: {block[1]}")
            continue
        try:
            certificate = x509.load_pem_x509_certificate(block[0].encode())
            basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except x509.ExtensionNotFound:
            yield invalid(path, _OMITTED, f"entry {i} does not have the CA bit set")
            continue
        except ValueError:
            yield invalid(path, _OMITTED, f"entry {i} does not parse as X.509")
            continue
        if not basic.ca:
            yield invalid(path, _OMITTED, f"entry {i} does not have the CA bit set")
            continue
        seen.setdefault(certificate.public_bytes(Encoding.DER), []).append(i)

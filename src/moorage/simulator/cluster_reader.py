"""The reader of clusters: it reads the objects of a simulation from manifests, dumps, and directories of these.

Each object gets what the API server would add: a namespace, defaults, and a UID if it has none. Faults of objects are collected
and reported together. Nothing is dropped silently: the report counts what is not read and says why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import replace as with_fields
from enum import Enum
from os import PathLike, fspath
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr, replace

from moorage.api import defaults
from moorage.api.core import Namespace, Object, ObjectMeta, Pod, PodSpec
from moorage.api.custom_objects import CustomObject, guess_plural
from moorage.api.decode import decode
from moorage.api.documents.object_fields import generated_name, stable_uid
from moorage.api.gc_pause import collector_paused
from moorage.api.kinds import Kind
from moorage.api.pod_decoding import PodDecoder, without_token_name
from moorage.api.reading.json_tree import UNREADABLE
from moorage.api.releases.release import Release
from moorage.api.validation import validate
from moorage.api.validation.pods import PodValidator
from moorage.basis.inputs.components import Component, component_of, components_of, files_of
from moorage.basis.inputs.files import InputFile, open_sources
from moorage.basis.inputs.objects import SERVER_VERSION, FoundObject, Payload, find_objects, is_printed, plain_object
from moorage.basis.inputs.simulated_kinds import KINDS, UNKNOWN_KIND, find_kind, json_decoder, why_unused
from moorage.basis.printable import counted, some
from moorage.errors import InputError
from moorage.simulator import cluster_input
from moorage.simulator.job_kinds import PLACES, QUEUE_KINDS, pod_sets_of, suffixes_of
from moorage.simulator.older_versions import advice, in_read_version
from moorage.simulator.unknown_fields import FieldCheck, Validation, title_of

# Reads pods that are copies of valid ones: they share all of the spec, labels and owners, and need not be checked again.
#
# Most pods of a dump are copies. A copy has its own name, node, annotations and status, which are read and checked; its spec
# with all defaults is that of the first pod.

#: How many different pods are remembered.
_MOST: Final = 4096


class CopyReader:
    """Reads copies of the pods that ``learn`` was called with.

    ``validator`` validated these pods; None if pods are not validated.
    """

    def __init__(self, decoder: PodDecoder, validator: PodValidator | None) -> None:
        self._decoder = decoder
        self._validator = validator
        #: What copies share, by identity → the same objects, so that they stay alive, and the complete spec without its node.
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], PodSpec]] = {}
        #: The key and the parts of the pod that ``read`` did not know, and its node.
        self._missed: tuple[tuple[Any, ...], tuple[Any, ...], str] | None = None

    def read(self, text: msgspec.Raw | bytes) -> Pod | None:
        """Return a pod that an API server printed, if it is a copy; None for all others, which need a full check."""
        self._missed = None
        try:
            read = self._decoder.text_of(text)
            metadata = read.metadata
            if not (metadata.name and metadata.namespace and metadata.uid and metadata.creation_timestamp):
                return None
            self._decoder.share_metadata(metadata)
            template, node = self._decoder.template(read)
            labels, owners = metadata.labels, metadata.owner_references
            key = (id(template), id(labels) if labels else 0, id(owners), metadata.namespace, metadata.finalizers, not node)
            known = self._known.get(key)
            if known is None:
                self._missed = key, (template, labels, owners), node
                return None
            spec = known[1]
            if node:
                spec = spec.__copy__()  # type: ignore[attr-defined]  # faster than replace()
                force_setattr(spec, "node_name", node)
            pod = Pod(metadata=metadata, spec=spec, status=self._decoder.status(read))
        except UNREADABLE:
            return None
        return pod if self._validator is None or self._validator.has_plain_fields(pod) else None

    def learn(self, pod: Pod) -> None:
        """Remember the pod that ``read`` did not know, now that it is complete and valid."""
        if self._missed is None:
            return
        key, parts, node = self._missed
        self._missed = None
        if pod.spec.node_name != node:
            return
        spec = pod.spec
        if node:
            spec = spec.__copy__()  # type: ignore[attr-defined]
            force_setattr(spec, "node_name", "")
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = parts, spec


# -- read rules --------------------------------------------------------------------------------------------------------
# How input is read: whether unknown fields are errors, and which unknown kinds are read as workloads.

_WORKLOAD_NAMES: Final = (
    "CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet",
)  # fmt: skip
_WORKLOADS: Final = {kind.name: kind for kind in KINDS if kind.name in _WORKLOAD_NAMES}
#: The fields of ``ClusterInput`` that hold workloads.
WORKLOAD_SLOTS: Final = tuple(kind.slot for kind in _WORKLOADS.values())
_FORM: Final = re.compile(r"(?P<resource>[a-z0-9-]+(?:\.[a-z0-9-]+)+)=(?P<kind>\w+)")


class LeavesOut(Enum):
    """Which objects are left out, with a note each, if they cannot be read; the others are errors.

    ``NONE``    none: a person wrote the objects, for this question
    ``DUMPED``  those that a program wrote: of lists, of streams of JSON, of directories, and what an API server printed
    ``ALL``     all, as a scheduler does with what an API server sends
    """

    NONE = "none"
    DUMPED = "dumped"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How to read unknown fields and kinds.

    ``validation``  how to handle fields that a kind does not have
    ``treat_as``    pairs of ``plural.group`` and the workload kind that its objects are read as
    ``for_policies``  keep what admission policies read of objects, even if this input has no policies
    ``release``     refuse pod groups and workloads in versions that this release does not serve; None: read them all
    ``leaves_out``  which objects to leave out if they cannot be read
    """

    validation: Validation = Validation.STRICT
    treat_as: tuple[tuple[str, Kind], ...] = ()
    for_policies: bool = False
    release: Release | None = None
    leaves_out: LeavesOut = LeavesOut.DUMPED

    def refused(self, found: FoundObject) -> str:
        """Return why the release does not read an object of ``scheduling.k8s.io`` in its version; "" if it does."""
        group, _, version = found.api_version.partition("/")
        if group != _SCHEDULING or found.kind not in _GROUPED or self.release is None:
            return ""
        served = self.release.group_versions
        if version in served:
            return ""
        instead = " or ".join(f"{_SCHEDULING}/{one}" for one in served)
        return f"{found.api_version}: Kubernetes {self.release.series} does not serve this version; write {instead}"

    def translated(self, found: FoundObject) -> FoundObject | None:
        """Return an object as the workload that its kind is to be treated as; None if there is no such rule."""
        if not self.treat_as:
            return None
        resource = _resource(found)
        for treated, kind in self.treat_as:
            if treated == resource:
                payload = {**plain_object(found), "apiVersion": kind.api_version, "kind": kind.name}
                return FoundObject(kind.api_version, kind.name, payload, found.where)
        return None


_SCHEDULING: Final = "scheduling.k8s.io"
_GROUPED: Final = frozenset({"CompositePodGroup", "PodGroup", "Workload"})
USUAL_RULES: Final = ReadRules()
#: The rules for objects that someone wrote for a question: a change, a pod to place.
STRICT_RULES: Final = ReadRules(leaves_out=LeavesOut.NONE)


def parse_treat_as(texts: Iterable[str]) -> tuple[tuple[str, Kind], ...]:
    """Read values of ``--treat-as``, such as ``rollouts.argoproj.io=Deployment``.

    Raises  InputError for another form, and for a kind that is no workload
    """
    return tuple(_parsed(text) for text in texts)


def _parsed(text: str) -> tuple[str, Kind]:
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(f"--treat-as {text!r}: write PLURAL.GROUP=KIND, such as rollouts.argoproj.io=Deployment")
    kind = _WORKLOADS.get(form["kind"])
    if kind is None:
        raise InputError(f"--treat-as {text!r}: {form['kind']} is not a workload; use one of {', '.join(sorted(_WORKLOADS))}")
    return form["resource"], kind


def template_hint(found: FoundObject) -> str:
    """Return a hint to read an object of an unknown kind with ``--treat-as``; "" if it has no pod template."""
    spec = plain_object(found).get("spec")
    if not isinstance(spec, dict):
        return ""
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(pod, dict) or not isinstance(pod.get("containers"), list):
        return ""
    kind = "Deployment" if "replicas" in spec else "Job"
    return f"it has a pod template: --treat-as {_resource(found)}={kind} places its pods"


def _resource(found: FoundObject) -> str:
    return f"{guess_plural(found.kind)}.{found.api_version.rpartition('/')[0]}"


#: How a note on an object begins that is left out.
LEFT_OUT: Final = "left out, as it cannot be read: "
#: How many faults are reported at once.
MAX_FAULTS: Final = 20
#: How many objects are named that are left out, beyond those whose faults are shown.
_MOST_NAMED: Final = 200
#: After how many objects ``on_read`` is called.
_OFTEN: Final = 100
#: Admission policies and their bindings, and kinds that are often their parameters; custom kinds can be, too.
_POLICY_GROUP: Final = "admissionregistration.k8s.io/"
_POLICY_KINDS: Final = ("AdmissionPolicy", "AdmissionPolicyBinding")
_PARAMETERS: Final = frozenset({"ConfigMap", "CustomResourceDefinition"})
OnRead: TypeAlias = Callable[[InputFile, int], None]
#: The maximum length of a line in a message.
_MAX_LINE = 400
_KIND_OF_TYPE: dict[type[Any], Kind] = {kind.type: kind for kind in KINDS}

_DEFAULTING: dict[str, Callable[[Any], Any]] = {
    "nodes": defaults.default_node,
    "namespaces": defaults.default_namespace,
    "limit_ranges": defaults.default_limit_range,
    "replication_controllers": defaults.default_replication_controller,
    "resource_claims": defaults.default_resource_claim,
    "resource_claim_templates": defaults.default_resource_claim_template,
}


def unwatched(source: InputFile, objects: int) -> None:
    """Do nothing: the default of ``on_read``."""


def read(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    recursive: bool = False,
    *,
    stdin: BinaryIO | None = None,
    validated: bool = True,
    custom: Iterable[str] = (),
    rules: ReadRules = USUAL_RULES,
    on_read: OnRead = unwatched,
) -> cluster_input.ClusterInput:
    """Return the cluster in files, directories and standard input (``-``) together; ``paths`` is one path or several.

    ``validated`` checks every object by the API server's rules; without it, only unreadable objects are rejected. An object of
    a dump that cannot be read is left out, with a note (``LeavesOut``).
    ``custom``: kinds to read in addition to those of Kubernetes, as ``plural.version.group``: those that plugins name
    (``moorage.kinds_named``). ``rules``: how to handle unknown fields and kinds. ``on_read`` is called with the file that is
    being read and the number of objects so far.
    Raises  InputError for files that cannot be opened or parsed, for invalid objects, and for two different objects of one
            name; each line of the message starts with the position
    """
    given = [paths] if isinstance(paths, str | PathLike) else paths
    skipped: list[str] = []
    sources = open_sources((fspath(path) for path in given), recursive=recursive, stdin=stdin, skipped=skipped)
    cluster = read_sources(sources, validated=validated, custom=custom, rules=rules, on_read=on_read)
    if not skipped:
        return cluster
    note = f"{counted(len(skipped), 'file')} not read because of the name: {some(skipped)}"
    return with_fields(cluster, report=with_fields(cluster.report, notes=(*cluster.report.notes, note)))


def read_sources(
    sources: Iterable[InputFile],
    *,
    validated: bool = True,
    custom: Iterable[str] = (),
    rules: ReadRules = USUAL_RULES,
    on_read: OnRead = unwatched,
    known: Iterable[tuple[str, Iterable[Object]]] = (),
) -> cluster_input.ClusterInput:
    """Return the cluster in the contents of several files together; see ``read``.

    ``known``: objects that were read earlier, with all that the API server would add, by their position
    """
    reader = _Reader(validated, custom, rules)
    count = 0
    with collector_paused():
        for source in sources:
            on_read(source, count)
            for found in find_objects(source, reader.note_duplicate, reader.note_other, reader.note_no_object):
                reader.take(found, source)
                count += 1
                if count % _OFTEN == 0:
                    on_read(source, count)
        for where, objects in known:
            reader.take_known(where, objects)
    return reader.finish()


def read_objects(
    objects: Iterable[Object | FoundObject],
    *,
    validated: bool = True,
    custom: Iterable[str] = (),
    rules: ReadRules = STRICT_RULES,
) -> cluster_input.ClusterInput:
    """Return the cluster in a program's objects together; see ``read``. By default none is left out."""
    reader = _Reader(validated, custom, rules)
    with collector_paused():
        for number, obj in enumerate(objects, 1):
            if isinstance(obj, Object):
                reader.take_value(obj, f"object {number}")
            else:
                reader.take(obj)
    return reader.finish()


class _Reader:
    """Collects objects by kind, namespace and name, with the position of each."""

    def __init__(self, validated: bool, custom: Iterable[str], rules: ReadRules) -> None:
        self.validated = validated
        self.rules = rules
        self.fields = FieldCheck(rules.validation if validated else Validation.IGNORE)
        self.hints: dict[tuple[str, str], str] = {}
        self.named = dict.fromkeys(custom)
        self.custom = cluster_input.CustomReader({**self.named, **PLACES}, PLACES)
        self.components: list[Component] = []
        self.custom_objects: dict[tuple[type[CustomObject], str, str], cluster_input.ReadObject] = {}
        self.pod_faults = PodValidator()
        self.pod_defaults = defaults.PodDefaults()
        decoder = PodDecoder()
        self.copies = CopyReader(decoder, self.pod_faults if validated else None)
        self._decode_pod = decoder.decode
        self.objects: dict[str, dict[tuple[str, str], Any]] = {kind.slot: {} for kind in KINDS}
        self.places: dict[str, dict[tuple[str, str], str]] = {kind.slot: {} for kind in KINDS}
        self.unused: dict[tuple[str, str], int] = {}
        self.repeated: list[str] = []
        self.duplicates: list[str] = []
        self.others: dict[str, None] = {}
        self.records: list[cluster_input.DumpRecord] = []
        self.server_version = ""
        self.faults: list[str] = []
        #: The kind and name of each object that is left out, and its fault.
        self.left_out: list[tuple[str, str]] = []
        self.policies: dict[cluster_input.WrittenKey, tuple[str, bytes]] = {}
        self.parameters: dict[cluster_input.WrittenKey, tuple[str, bytes]] = {}
        self.written: dict[cluster_input.WrittenKey, bytes] = {}

    def note_duplicate(self, message: str) -> None:
        """Note a key that is in a map twice."""
        self.duplicates.append(message)

    def note_other(self, where: str) -> None:
        """Note a file with a document that is no object."""
        self.others[where] = None

    def note_no_object(self, error: InputError) -> None:
        """Note an item of a list that is no object."""
        self._note_unreadable(error, FoundObject("", "", {}, str(error).partition(": expected")[0], True))

    def take(self, found: FoundObject, source: InputFile | None = None) -> None:
        if found.kind == SERVER_VERSION:
            self.server_version = plain_object(found)["version"]
            return
        if refused := self.rules.refused(found):
            self._note_fault(InputError(f"{found.where}: {found.kind}: {refused}"))
            return
        try:
            self._take(found, source)
        except InputError as error:
            self._note_unreadable(error, found)

    def _take(self, found: FoundObject, source: InputFile | None) -> None:
        """Take an object.

        Raises  InputError if it cannot be read
        """
        is_custom = self.custom.take(found)
        if not is_custom and self._takes_component(found):
            return
        read, is_written = self._as_read(found, is_custom)
        kind = find_kind(read.api_version, read.kind)
        if kind is None:
            if not is_custom:
                self._take_other(found, source)
            return
        if kind.slot == "pods" and self._takes_copy(read, kind):
            return
        if is_written and (unknown := self.fields.faults(read, kind, source)):
            self._note_fault(InputError(*unknown))
            return
        if wrong := self.fields.wrong_values(read, source):
            raise InputError(*wrong)
        metadata: ObjectMeta = self._keep(kind, self._decode(read.payload, kind, read.where), read.where).metadata
        is_bare = kind.slot == "pods" and not metadata.owner_references
        if metadata.creation_timestamp is None or is_bare or kind.slot in WORKLOAD_SLOTS:
            self.written[kind.slot, metadata.namespace, metadata.name] = _text(read.payload)

    def _takes_component(self, found: FoundObject) -> bool:
        """Note the components that an object runs; return True if it stands for nothing else, or holds a file that is read."""
        if (component := component_of(found)) is not None:
            self.components.append(component)
            return True
        if [one for one in files_of(found) if self.custom.take(one)]:
            self._takes_policy(found)  # a policy may name it as its parameter
            return True
        self.components += components_of(found)
        return False

    def _as_read(self, found: FoundObject, is_custom: bool) -> tuple[FoundObject, bool]:
        """Return an object in the kind and version in which it is read, and whether it was written so.

        Raises  InputError for an object of an older version that cannot be converted
        """
        if find_kind(found.api_version, found.kind) is not None:
            return found, True
        converted = None if is_custom else in_read_version(found)
        made = converted or self.rules.translated(found)
        return (found, True) if made is None else (made, made is converted)

    def _take_other(self, found: FoundObject, source: InputFile | None) -> None:
        """Take an object of a kind that scheduling does not read."""
        if (found.api_version, found.kind) == cluster_input.DUMP_RECORD:
            self.records.append(cluster_input.read_record(found))
            return
        if wrong := self.fields.wrong_values(found, source):
            raise InputError(*wrong)
        self._count_unused(found)

    def _takes_copy(self, found: FoundObject, kind: Kind) -> bool:
        """Add a pod if it is a copy of an earlier one; return False if it must be checked in full."""
        if isinstance(found.payload, dict) or not self.fields.is_done_with(kind):
            return False
        pod = self.copies.read(found.payload)
        if pod is not None:
            self._hold(kind, pod, found.where)
        return pod is not None

    def _decode(self, payload: Payload, kind: Kind, where: str) -> Any:
        if isinstance(payload, dict):
            return _with_shared_names(decode(payload, kind.type, where))
        try:
            return self._decode_pod(payload) if kind.slot == "pods" else json_decoder(kind).decode(payload)
        except UNREADABLE:
            return _with_shared_names(decode(bytes(payload), kind.type, where))

    def take_value(self, obj: Object, where: str) -> None:
        """Add an object that a program created."""
        if isinstance(obj, CustomObject):
            self.custom_objects[type(obj), obj.namespace, obj.name] = cluster_input.ReadObject(obj, obj.resource, where)
            return
        kind = _KIND_OF_TYPE.get(type(obj))
        if kind is None:
            raise InputError(f"{where}: {type(obj).__name__} is not a kind that a simulation reads")
        try:
            self._keep(kind, obj, where)
        except InputError as error:
            self._note_fault(error)

    def take_known(self, where: str, objects: Iterable[Object]) -> None:
        """Add objects of one kind that were read earlier."""
        objects = list(objects)
        kind = _KIND_OF_TYPE[type(objects[0])] if objects else KINDS[0]
        keyed = {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}
        if len(keyed) == len(objects) and not self.objects[kind.slot]:  # as usual: all at once
            self.objects[kind.slot] = keyed
            self.places[kind.slot] = dict.fromkeys(keyed, where)
            return
        for obj in objects:
            self._hold(kind, obj, where)

    def _note_unreadable(self, error: InputError, found: FoundObject) -> None:
        """Note an object that cannot be read: it is left out, or its faults are errors."""
        leaves_out = self.rules.leaves_out is not LeavesOut.NONE
        if leaves_out and (found.is_dumped or is_printed(plain_object(found))):
            self._leave_out(error, title_of(found) if found.kind else found.where)
        else:
            self._note_fault(error)

    def _leave_out(self, error: InputError, title: str) -> None:
        first, *others = _lines(error)
        first = first if title.partition(" ")[0] in first else f"{first} ({title})"
        more = f" (and {counted(len(others), 'other fault')})" if others else ""
        self.left_out.append((title, f"{first}{more}"))

    def _note_fault(self, error: InputError) -> None:
        if self.rules.leaves_out is LeavesOut.ALL:
            self._leave_out(error, str(error).partition(":")[0])
            return
        self.faults += _lines(error)
        if len(self.faults) >= MAX_FAULTS:
            raise InputError(*self.faults[:MAX_FAULTS], "and maybe more; these are the first") from None

    def _takes_policy(self, found: FoundObject) -> bool:
        """Keep an admission policy, or an object that can be a parameter of policies; return False for all but policies."""
        is_policy = found.api_version.startswith(_POLICY_GROUP) and found.kind.endswith(_POLICY_KINDS)
        if not is_policy and why_unused(found.api_version, found.kind) != UNKNOWN_KIND and found.kind not in _PARAMETERS:
            return False
        document = plain_object(found)
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            if is_policy:
                raise InputError(f"{found.where}: {found.kind}: metadata.name: Required value: name is required")
            return is_policy
        key = (f"{found.api_version}/{found.kind}", str(metadata.get("namespace") or ""), metadata["name"])
        if is_policy:
            document = {**document, "apiVersion": f"{_POLICY_GROUP}v1"}
            self.policies[key] = (f"{found.where}: {found.kind} {metadata['name']}", msgspec.json.encode(document))
        else:
            self.parameters[key] = (found.where, _text(found.payload))
        return is_policy

    def _count_unused(self, found: FoundObject) -> None:
        if self._takes_policy(found):
            return
        key = (found.kind, found.api_version)
        if key not in self.unused:
            self.hints[key] = template_hint(found)
        self.unused[key] = self.unused.get(key, 0) + 1

    def _keep(self, kind: Kind, given: Any, where: str) -> Any:
        """Add an object, and return it with what the API server would add."""
        slot = kind.slot
        known = _identified(given, kind, where, len(self.objects[slot]))
        defaulting = self.pod_defaults if slot == "pods" else _DEFAULTING.get(slot)
        if defaulting is not None:
            try:
                known = defaulting(known)
            except InputError as error:
                raise InputError(f"{where}: {_title(kind, known)}: {error}") from None
        if self.validated:
            faults = list(self.pod_faults(known)) if kind.slot == "pods" else validate(known)
            if faults:
                raise InputError(*(f"{where}: {_title(kind, known)}: {fault}" for fault in faults))
        if slot == "pods":
            self.copies.learn(known)
        self._hold(kind, known, where)
        return known

    def _hold(self, kind: Kind, known: Any, where: str) -> None:
        slot = kind.slot
        key = (known.metadata.namespace, known.metadata.name)
        before = self.objects[slot].setdefault(key, known)
        if before is known:
            self.places[slot][key] = where
            return
        other = self.places[slot][key]
        if before != known:
            self._note_fault(InputError(f"{where}: {_title(kind, known)} is also at {other}, and differs; keep one of them"))
            return
        self.repeated.append(f"{_title(kind, known)} ({other} and {where})")

    def finish(self) -> cluster_input.ClusterInput:
        """Return the cluster.

        Raises  InputError with all faults, up to a limit
        """
        self._sort_custom()
        if self.faults:
            raise InputError(*self.faults[:MAX_FAULTS])
        read = tuple((kind.name, len(self.objects[kind.slot])) for kind in KINDS if self.objects[kind.slot])
        if self.left_out and not (read or self.unused or self.custom_objects or self.rules.leaves_out is LeavesOut.ALL):
            more = ["and maybe more; these are the first"] if len(self.left_out) > MAX_FAULTS else []
            raise InputError(*(fault for _, fault in self.left_out[:MAX_FAULTS]), *more)
        counts = Counter(one.kind for one in self.custom_objects.values())
        read += tuple(counts.items())
        implied = self._add_implied_namespaces()
        pods = [pod for pod in self.objects["pods"].values() if isinstance(pod, Pod)] if self.records else []
        notes = [*(note for record in self.records for note in record.notes(pods)), *self.fields.notes()]
        left_out = tuple(self._left_out_notes())
        notes += left_out
        taken_at = next((record.taken_at for record in self.records), "")
        version = self.server_version or next((record.server_version for record in self.records), "")
        if self.duplicates:
            keys = counted(len(self.duplicates), "key")
            notes.append(
                f"{keys} given more than once in a map; the last value counts, as with kubectl: {some(self.duplicates)}"
            )
        if self.others:
            files = counted(len(self.others), "file")
            notes.append(f"{files} with documents that are no Kubernetes objects, which were not read: {some([*self.others])}")
        if self.repeated:
            notes.append(f"{counted(len(self.repeated), 'object')} given more than once, identically: {some(self.repeated)}")
        if implied:
            notes.append(f"{counted(len(implied), 'namespace')} not in the input, assumed without labels: {some(implied)}")
        unused = tuple(self._unused(name, version, count) for (name, version), count in sorted(self.unused.items()))
        kept: dict[str, Any] = {
            slot: tuple(objects.values()) for slot, objects in self.objects.items() if slot in cluster_input.SLOTS
        }
        others = tuple(
            obj for slot, objects in self.objects.items() if slot not in cluster_input.SLOTS for obj in objects.values()
        )
        every = [one.obj for one in self.custom_objects.values()]
        custom = tuple(obj for obj in every if obj.resource not in PLACES or obj.resource in self.named)
        jobs = tuple(obj for obj in every if obj.resource in PLACES)
        read += tuple(Counter(kind_name.rpartition("/")[2] for kind_name, _, _ in self.policies).items())
        report = cluster_input.InputReport(read, unused, tuple(notes), taken_at, version, left_out)
        # A dump has each component twice: as a workload without arguments, and with its settings, which count.
        components = tuple(sorted(self.components, key=lambda one: not (one.arguments or one.environment)))
        written = None
        if self.policies or self.rules.for_policies:
            written = cluster_input.WrittenObjects(self.policies, self.parameters, self.written)
        return cluster_input.ClusterInput(
            **kept,
            custom=custom,
            job_objects=jobs,
            components=components,
            others=others,
            written=written,
            report=report,
        )

    def _left_out_notes(self) -> Iterator[str]:
        """Yield a note on each object that is left out; beyond the first ones, only their names."""
        yield from (f"{LEFT_OUT}{fault}" for _, fault in self.left_out[:MAX_FAULTS])
        others = [title for title, _ in self.left_out[MAX_FAULTS:]]
        if others:
            names = ", ".join(others[:_MOST_NAMED]) + (", …" if len(others) > _MOST_NAMED else "")
            yield f"{LEFT_OUT}{counted(len(others), 'other object')}: {names}"

    def _unused(self, name: str, version: str, count: int) -> cluster_input.Unused:
        removed = advice(version, name)
        why = removed or self.custom.why_unused(version, name) or why_unused(version, name)
        unknown = bool(removed) or why.startswith(UNKNOWN_KIND)
        hint = self.hints[name, version] if unknown and not removed else ""
        return cluster_input.Unused(name, version, count, f"{why}; {hint}" if hint else why, unknown)

    def _sort_custom(self) -> None:
        """After all objects were read, separate those of kinds that plugins name from others."""
        for found in self.custom.unclaimed():
            if find_kind(found.api_version, found.kind) is None:
                self._count_unused(found)
        for one in self.custom.objects(self._note_unreadable, _check_custom):
            key = (type(one.obj), one.obj.namespace, one.obj.name)
            before = self.custom_objects.setdefault(key, one)
            if before is one:
                continue
            if before.obj != one.obj:
                self._note_fault(
                    InputError(f"{one.where}: {one.title} is also at {before.where}, and differs; keep one of them")
                )
            else:
                self.repeated.append(f"{one.title} ({before.where} and {one.where})")

    def _add_implied_namespaces(self) -> list[str]:
        """Add namespaces that objects use but the input lacks; return their names without ``default``."""
        spaces = self.objects["namespaces"]
        used = {space for kind in KINDS if kind.namespaced for space, _ in self.objects[kind.slot]}
        used |= {one.obj.namespace for one in self.custom_objects.values() if one.obj.namespace}
        implied = sorted(space for space in used | {"default"} if ("", space) not in spaces)
        for name in implied:
            metadata = ObjectMeta(name=name, uid=stable_uid("Namespace", "", name))
            spaces["", name] = defaults.default_namespace(Namespace(metadata=metadata))
        return [name for name in implied if name != "default"]


# -- one object ---------------------------------------------------------------------------------------------------------


def _with_shared_names(obj: Any) -> Any:
    """Return an object as ``PodDecoder`` returns pods: with the same name for the token's volume."""
    return replace(obj, spec=without_token_name(obj.spec)) if isinstance(obj, Pod) and obj.spec.volumes else obj


def _identified(given: Any, kind: Kind, where: str, count: int) -> Any:
    """Return the object with a name, a namespace and a UID; ``count`` makes generated names unique."""
    metadata: ObjectMeta = given.metadata
    if metadata.name and metadata.uid and bool(metadata.namespace) == kind.namespaced:
        return given
    namespace = (metadata.namespace or "default") if kind.namespaced else ""
    name = metadata.name
    if not name and not metadata.generate_name:
        raise InputError(f"{where}: {kind.name}: metadata.name: Required value: name or generateName is required")
    if not name:
        name = generated_name(metadata.generate_name, kind.name, namespace, str(count))
    uid = metadata.uid or stable_uid(kind.name, namespace, name)
    return replace(given, metadata=replace(metadata, name=name, namespace=namespace, uid=uid))


def _check_custom(obj: CustomObject) -> None:
    """Check that an object of a queue, and the pods of a job, can be read.

    Raises  InputError
    """
    if obj.resource in PLACES:
        pod_sets_of(obj)
        suffixes_of(obj)
    elif obj.resource in QUEUE_KINDS:
        from moorage.simulator.kueue.validation import with_defaults  # only those who have queues pay for the import

        with_defaults([obj.document])


def _lines(error: InputError) -> list[str]:
    return [line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…" for line in str(error).splitlines()]


def _text(payload: Payload) -> bytes:
    return msgspec.json.encode(payload) if isinstance(payload, dict) else bytes(payload)


def _title(kind: Kind, obj: Object) -> str:
    return f"{kind.name} {obj.key}"

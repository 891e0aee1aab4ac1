"""``moorage up``: run a cluster in one process, for kubectl and other clients."""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import io
import linecache
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import count as numbers
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any, BinaryIO, Final

from moorage.api.documents.object_fields import CONFIG_MAPS, NODES, STORAGE_CLASSES
from moorage.api.documents.served_kinds import parse_runtime_config
from moorage.api.feature_gates import FeatureGates
from moorage.api.fields.managed_fields import FieldManager
from moorage.api.releases import WHOLE
from moorage.basis.files import expanded, home_folder
from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.basis.printable import counted
from moorage.basis.serving.certificate_authority import ADMIN, make_authority
from moorage.basis.serving.listen_addresses import Address, address_of
from moorage.cluster.apiserver.admission_configuration import read_admission_configuration
from moorage.cluster.apiserver.http.audit_log import AuditLog
from moorage.cluster.apiserver.http.audit_policy import METADATA
from moorage.cluster.apiserver.http.audit_policy_file import read_audit_policy
from moorage.cluster.apiserver.http.serve import open_store
from moorage.cluster.controllers.all_controllers import all_controllers, chosen
from moorage.cluster.controllers.nodes.hollow_nodes import STANDARD_CLASS, NodeShape, make_nodes
from moorage.cluster.controllers.nodes.kubelets import KUBELET
from moorage.core.building.builder import complete_scheduler
from moorage.core.engine.engine_state import EngineSettings
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue import QueueTimes
from moorage.errors import InputError, MoorageError
from moorage.framework.mistakes import mistakes_in
from moorage.framework.plugin_runner import failure_text
from moorage.framework.profile import Profile
from moorage.framework.registry import load
from moorage.interfaces.cli import BEGAN_S
from moorage.interfaces.cli.cluster_files import STDIN, release_of_files
from moorage.interfaces.cli.given_back_memory import collect_seldom, giving_back_memory
from moorage.interfaces.cli.live.embedded_cluster import BuiltScheduler, Embedded, Ready
from moorage.interfaces.cli.live.release_flags import ALGORITHM, Era, OldFlags, era_of, policy_of, releases_with
from moorage.interfaces.cli.live.run_serving import Ending
from moorage.interfaces.cli.live.store_loader import fill, lost_pods
from moorage.interfaces.cli.main import OK
from moorage.interfaces.cli.option_tables import (
    AUTO,
    described,
)
from moorage.interfaces.cli.pflag import Given
from moorage.interfaces.cli.question_worker import ANSWERING, question_words
from moorage.interfaces.cli.terminal import Progress, say
from moorage.interfaces.web.embedded_site import EmbeddedSite
from moorage.live.runtime.extender_client import ExtenderClient
from moorage.live.runtime.plugin_limit import TimeLimit
from moorage.live.server.health import PATIENCE_S
from moorage.live.server.scheduler_metrics import SchedulerMetrics
from moorage.rules.store.store import Store

# -- up scheduler ------------------------------------------------------------------------------------------------------

#: Options → the corresponding flags of kube-scheduler.
#: How long pods take to stop, in seconds: times of deletion are whole seconds, so it is a bit more than one.
_STOP_S: Final = 1.2
_FLAGS: Final = {
    "algorithm_provider": "algorithm-provider", "policy_config_file": "policy-config-file",
    "policy_configmap": "policy-configmap", "policy_configmap_namespace": "policy-configmap-namespace",
    "use_legacy_policy_config": "use-legacy-policy-config", "scheduler_name": "scheduler-name",
    "hard_pod_affinity": "hard-pod-affinity-symmetric-weight",
}  # fmt: skip


class PluginMeter:
    """Measures the plugins of each scheduler that is built with ``watched``, for the web interface.

    ``bare`` are the profiles without measurements. Without ``measures``, nothing is measured.
    """

    def __init__(self, *, measures: bool) -> None:
        self.metrics = SchedulerMetrics(time.monotonic) if measures else None
        self.bare: dict[str, Profile] = {}

    def watched(self, profile: Profile) -> Profile:
        self.bare[profile.scheduler_name] = profile
        return profile if self.metrics is None else self.metrics.probe.watched(profile)


@dataclass(frozen=True, slots=True)
class WantedScheduler:
    """The scheduler to build, possibly before its cluster exists. ``old`` holds the flags of an emulated release."""

    given: Mapping[str, Any]
    era: Era
    old: OldFlags | None

    @classmethod
    def read(cls, given: Mapping[str, Any], report: Callable[[str], None]) -> WantedScheduler:
        """Return the scheduler that the options describe; ``report`` receives warnings about deprecated and ignored options.

        Raises  InputError
        """
        named = {flag: given[option] for option, flag in _FLAGS.items() if given[option] not in (None, "", False)}
        config = given["config"] or ""
        if given["emulate"] is not None:
            era = Era(given["emulate"], "--emulate")
        else:
            era = era_of(config, [flag for flag in ALGORITHM if flag in named])
        era = era.with_text(config)
        unknown = [flag for flag in named if all(flag != one.name for one in era.flags)]
        if unknown:
            *others, last = releases_with(unknown[0])
            known = f"{', '.join(others)} or {last}"
            raise InputError(f"--{unknown[0]}: not a flag of {era.release}; choose {known} with --emulate")
        if not era.is_old:
            return cls(given, era, None)
        values = {**{flag.name: flag.default for flag in era.flags}, "config": config, **named}
        old = OldFlags(era.completed(Given(values, frozenset(named))), era)
        old.check()
        for line in old.warnings():
            report(line)
        return cls(given, era, old)

    @property
    def needs_cluster(self) -> bool:
        """True if the scheduler reads its Policy from a ConfigMap, so that the cluster must exist first."""
        return self.old is not None and self.old.config_map is not None

    @property
    def cluster_gates(self) -> FeatureGates:
        """The gates of the other components, which run 1.36 or later; those of earlier releases concern the scheduler."""
        emulated = self.era.emulated
        return FeatureGates.parse(self.given["feature_gates"], emulated.name) if emulated in WHOLE else FeatureGates()

    def build(
        self, read_config_map: Callable[[str, str], bytes] | None = None, watched: Callable[[Profile], Profile] | None = None
    ) -> tuple[Scheduler, ExtenderClient]:
        """Return the scheduler, and a client for its extenders. ``read_config_map`` returns the Policy of a ConfigMap.
        ``watched`` wraps each profile.

        Raises  ConfigError, InputError
        """
        given = self.given
        if given["plugins"] and os.getcwd() not in sys.path:
            # Like `python -m`, find modules in the current directory, but never in place of an installed module.
            sys.path.append(os.getcwd())
        source = ConfigSource(
            self.era.config if self.old is None or self.old.has_config else None,
            given["config"] or "the default configuration",
            emulate=self.era.asked,
            feature_gates=given["feature_gates"],
            plugins=tuple(load(name) for name in given["plugins"]),
        )
        loaded = load_source(source, None if self.old is None else self.old.algorithm(read_config_map or _no_cluster))
        if loaded.note:
            _report(f"note: {loaded.note}")
        wrap = watched
        if given["plugin_timeout"]:
            limit = TimeLimit(given["plugin_timeout"])
            wrap = limit.limited if watched is None else lambda profile: watched(limit.limited(profile))
        settings = EngineSettings(QueueTimes(max_unschedulable_s=self.era.retried_s), given["max_disks"])
        scheduler = complete_scheduler(loaded, given["seed"], settings, watched=wrap)
        for line in (*loaded.warnings, *mistakes_in(scheduler.profiles.values())):
            _report(f"note: {line}")
        return scheduler, ExtenderClient(loaded.configuration.extenders)


def _no_cluster(namespace: str, name: str) -> bytes:
    raise InputError(f"couldn't get policy config map {namespace}/{name}: the cluster does not exist yet")


# -- patience ----------------------------------------------------------------------------------------------------------


@contextmanager
def report_if_slow(what: str, report: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Report ``Still {what}`` if the block takes longer than ``patience_s``."""
    timer = threading.Timer(patience_s, report, [f"Still {what}"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@described("up")
def up(**given: Any) -> int:
    """Run ``moorage up``."""
    stdin: BinaryIO = sys.stdin.buffer
    if given["emulate"] == AUTO:
        given["emulate"], stdin = _release_of_files(given, stdin)
    meter = PluginMeter(measures=given["has_ui"])
    with report_if_slow("loading the scheduler's configuration and plugins", _report):
        wanted = WantedScheduler.read(given, _report)
        built = None if given["no_scheduler"] or wanted.needs_cluster else wanted.build(watched=meter.watched)
    home = expanded(given["home"])
    home_folder(home, _report)
    address = address_of(given["bind"], given["names"])
    authority = make_authority(home / "pki", address.names, _report)
    gates = wanted.cluster_gates
    for line in gates.lacking:
        _report(f"note: {line}")
    version = wanted.era.emulated.version
    file = given["admission_config"]
    admission = read_admission_configuration(expanded(Path(file))) if file else None
    controllers = chosen(
        all_controllers(given["job_s"], gates, version, _STOP_S), [one for one in given["controllers"].split(",") if one]
    )
    with report_if_slow(f"reading {given['data']}" if given["data"] else "creating the cluster", _report):
        added = parse_runtime_config(given["runtime_config"])
        offset = time.time() - time.monotonic()  # the store's time of day never jumps
        clock = lambda: offset + time.monotonic()  # noqa: E731
        store = open_store(
            given["data"], clock=clock, gates=gates, runtime_config=added, warn=_report, server_version=version,
            admission=admission,
        )  # fmt: skip
    site: EmbeddedSite | None = None
    audit: AuditLog | None = None
    held = ExitStack()
    try:
        audit = _audit_log(given)
        _fill(store, given, stdin)
        if built is None and not given["no_scheduler"]:
            built = wanted.build(lambda namespace, name: _policy(store, namespace, name), meter.watched)
        scheduler, extenders = built or (None, ExtenderClient(()))
        site = _site(store, scheduler, given, meter) if given["has_ui"] else None
        cluster = Embedded(
            store,
            authority,
            given["kubeconfig"] or held.enter_context(own_kubeconfig(home)),
            controllers,
            scheduler,
            given["port"],
            _report,
            lambda ready: _print_ready(ready, given, address, time.monotonic() - BEGAN_S, site),
            extenders,
            address,
            site,
            meter.metrics,
            audit,
        )
        collect_seldom()
        reloading = _reloading(cluster, wanted, store, site, meter) if given["reloads"] else None
        return asyncio.run(_run(cluster, given["lasts_s"], reloading))
    finally:
        if site is not None:
            site.end()
        store.close()
        if audit is not None:
            audit.close()
        held.close()


@contextmanager
def own_kubeconfig(home: Path) -> Iterator[Path]:
    """Yield the kubeconfig to write: the folder's, or one with a number while another cluster of the folder runs with that.

    A lock beside the file says that its cluster runs; the system frees it when the process ends.
    """
    for number in numbers(1):
        path = home / ("kubeconfig" if number == 1 else f"kubeconfig-{number}")
        with (home / f".{path.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if number > 1:
                _report(f"note: {home / 'kubeconfig'} is that of a cluster that runs; this one writes {path}")
            yield path
            return


def _audit_log(given: Mapping[str, Any]) -> AuditLog | None:
    """Return the audit log that the options ask for.

    Raises  InputError, ConfigError
    """
    if not given["audit_log"]:
        return None
    file = given["audit_policy"]
    policy = read_audit_policy(expanded(Path(file)), _report) if file else METADATA
    return AuditLog.opened(given["audit_log"], policy, _report)


def _release_of_files(given: dict[str, Any], stdin: BinaryIO) -> tuple[str, BinaryIO]:
    """Return the release of the cluster in the files, and standard input to read once more.

    Raises  InputError
    """
    sources = list(open_sources(given["paths"], recursive=given["recursive"], stdin=stdin))
    release = release_of_files(sources, lambda note: _report(f"note: {note}"))
    _report(f"emulating kube-scheduler {release}")
    again = next((source.data for source in sources if source.where == STDIN), None)
    return release.name, stdin if again is None else io.BytesIO(again)


# -- setting up ---------------------------------------------------------------------------------------------------------


def _policy(store: Store, namespace: str, name: str) -> bytes:
    """Return the Policy in a ConfigMap.

    Raises  InputError
    """
    found = store.find(CONFIG_MAPS, namespace, name)
    if found is None:
        raise InputError(f'couldn\'t get policy config map {namespace}/{name}: configmaps "{name}" not found')
    return policy_of(found.document().get("data"))


def _site(store: Store, scheduler: Scheduler | None, given: dict[str, Any], meter: PluginMeter) -> EmbeddedSite:
    """Return the web interface, whose questions have the scheduler's options."""
    on_change = _report if given["writes"] else None
    return EmbeddedSite(
        store, scheduler, answer=ANSWERING, options=question_words(given), on_change=on_change, profiles=meter.bare,
        measured=list if meter.metrics is None else meter.metrics.plugin_times, past_of=_run_in,
    )  # fmt: skip


def _run_in(folder: Path) -> Any:
    from moorage.interfaces.web.recorded_past import run_in  # rarely needed

    return run_in(folder, None)


def _steady_clock() -> Any:
    """Return a clock of the time of day that never jumps."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


def _fill(store: Store, given: dict[str, Any], stdin: BinaryIO) -> None:
    """Store the objects of the files, and create the nodes."""
    with (
        Progress() as progress,
        report_if_slow(f"loading {', '.join(given['paths'])}", (lambda _: None) if progress.shows else _report),
    ):
        remarks = fill(store, given["paths"], recursive=given["recursive"], stdin=stdin, progress=progress)
    for remark in remarks:
        _report(remark)
    count = given["nodes"]
    if count is None:
        count = 0 if given["paths"] or next(store.all(NODES), None) is not None else 10
    if not given["paths"] and next(store.all(STORAGE_CLASSES), None) is None:
        store.create(STORAGE_CLASSES, "", deepcopy(STANDARD_CLASS))
    shape = NodeShape(given["node_cpu"], given["node_memory"], given["node_pods"], given["zones"])
    with report_if_slow("creating the nodes", _report):
        for node in make_nodes(count, shape):
            if store.find(NODES, "", node["metadata"]["name"]) is None:
                store.create(NODES, "", node, manager=FieldManager(KUBELET, version=NODES.api_version))
    for remark in lost_pods(store):
        _report(remark)


# -- running ------------------------------------------------------------------------------------------------------------


def _reloading(
    cluster: Embedded, wanted: WantedScheduler, store: Store, site: EmbeddedSite | None, meter: PluginMeter
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return the coroutine function that watches the files of plugins while the cluster runs.

    Raises  InputError if there is no plugin to follow
    """
    if cluster.scheduler is None:
        raise InputError("--reload: there is no scheduler; leave out --no-scheduler")
    files, scheduler = PluginFiles(cluster.scheduler), wanted
    if not files.names:
        raise InputError("--reload: no profile enables a plugin of yours; name one with --plugins and enable it with --config")
    sys.dont_write_bytecode = True  # else a second change within the same second would load the cached bytecode
    _report(f"following {', '.join(files.names)}")

    def build() -> BuiltScheduler:
        return scheduler.build(lambda namespace, name: _policy(store, namespace, name), meter.watched)

    def restart(built: BuiltScheduler) -> None:
        cluster.restart(built)
        if site is not None:
            site.show(built[0])

    return lambda: follow(files, build, restart, _report)


async def _run(
    cluster: Embedded, lasts_s: float | None, reloading: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> int:
    running = asyncio.ensure_future(cluster.run())
    following = None if reloading is None else asyncio.ensure_future(reloading())
    Ending().listen(running)
    if lasts_s is not None:
        _end_after(lasts_s, cluster, running)
    async with giving_back_memory():
        await asyncio.wait({running})
    if following is not None:
        following.cancel()
    if not running.cancelled():
        await running
    return OK


def _end_after(lasts_s: float, cluster: Embedded, running: asyncio.Future[None]) -> None:
    """Stop this long after the cluster is ready, so that a slow start does not shorten the run."""
    on_ready = cluster.on_ready

    def announce(ready: Ready) -> None:
        on_ready(ready)
        asyncio.get_running_loop().call_later(lasts_s, running.cancel)

    cluster.on_ready = announce


def _print_ready(
    ready: Ready, given: dict[str, Any], address: Address, took_s: float, site: EmbeddedSite | None
) -> None:  # fmt: skip
    scheduled = "no scheduler" if given["no_scheduler"] else "a scheduler"
    say(f"A cluster of {counted(ready.nodes, 'node')} with {scheduled} is up on {address.url(ready.port)} after {took_s:.1f}s.")
    if address.is_open:
        called = f" as {', '.join(address.names)}" if address.names else ""
        say(f"Other machines can reach it{called}; the kubeconfig grants administrator access.")
    say("")
    say(f"  export KUBECONFIG={quote(str(ready.kubeconfig.absolute()))}")
    say("  kubectl get nodes")
    say("")
    if site is not None:
        token = site.sessions.make_token(ADMIN)
        say(f"In a browser, once: {address.url(ready.port)}/ui/#token={token}")
        say("")
    say("Ctrl-C stops it." if given["data"] is None else f"Ctrl-C stops it; {given['data']} keeps its state.")


def _report(line: str) -> None:
    say(line, err=True)


# -- plugin files ------------------------------------------------------------------------------------------------------
# Follow the files of custom plugins: when one changes, import them again and build a scheduler with the new code.
#
# A change that cannot be imported is reported, and the old code stays loaded.

#: Seconds between two checks of the files, and seconds to wait after a change before they are read.
_LOOK_S: Final = 0.5
_REST_S: Final = 0.1

Stamps = dict[str, tuple[int, int]]
Report = Callable[[str], None]


class PluginFiles:
    """The modules of a scheduler's custom plugins, and the modules that these import from the same folders."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._folders = frozenset(_folders(scheduler))
        self._stamps = self._look()

    @property
    def names(self) -> list[str]:
        """The names of the files to watch."""
        return sorted(Path(path).name for path in self._stamps)

    def _modules(self) -> Iterator[tuple[str, ModuleType, str]]:
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if path and any(Path(path).is_relative_to(folder) for folder in self._folders) and _is_own(path):
                yield name, module, path

    def _look(self) -> Stamps:
        return {path: stamp for _, _, path in self._modules() if (stamp := _stamp(path)) is not None}

    def have_changed(self) -> bool:
        """Return True if a file changed since the last reload; False while one is missing, as an editor is replacing it."""
        now = {path: _stamp(path) for path in self._stamps}
        return None not in now.values() and now != self._stamps

    def reload(self, build: Callable[[], BuiltScheduler]) -> BuiltScheduler:
        """Import the modules again and build a scheduler. If that fails, restore the old modules and raise the error."""
        old = {name: module for name, module, _ in self._modules()}
        self._stamps = {path: _stamp(path) or (0, 0) for path in self._stamps}
        for name in old:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.checkcache()
        try:
            built = build()
        except BaseException:
            for name in [name for name, _, _ in self._modules()]:
                del sys.modules[name]
            sys.modules.update(old)
            raise
        self._stamps |= self._look()
        return built


def _folders(scheduler: Scheduler) -> Iterator[Path]:
    """Yield the folders of custom plugins: for a plugin in a package, that of the top-level package."""
    modules = {type(plugin).__module__ for profile in scheduler.profiles.values() for plugin in profile.plugins.values()}
    for name in modules:
        if name.partition(".")[0] != "moorage":
            path = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
            if path:
                yield Path(path).resolve().parent


def _is_own(path: str) -> bool:
    """Return True for files that a user may edit, which excludes installed packages, extension modules and Moorage itself."""
    parts = Path(path).parts
    own_code = Path(__file__).resolve().parents[3]
    return "site-packages" not in parts and not Path(path).is_relative_to(own_code) and "lib-dynload" not in parts


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


async def follow(
    files: PluginFiles, build: Callable[[], BuiltScheduler], restart: Callable[[BuiltScheduler], None], report: Report
) -> None:
    """Build a scheduler whenever the files change, and pass it to ``restart``, until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if not files.have_changed():
            continue
        await asyncio.sleep(_REST_S)
        try:
            built = files.reload(build)
        except MoorageError as error:
            report(f"{error}; the old plugins stay in use")
        except Exception as error:
            report(f"the changed plugins cannot be used: {failure_text(error)}; the old ones stay in use")
        else:
            restart(built)

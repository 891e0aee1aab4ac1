"""The static pod that takes the place of kube-scheduler has its name, its account and flags that exist."""

from pathlib import Path

import yaml

from moorage.interfaces.cli.live.release_flags import FLAGS

POD = yaml.safe_load((Path(__file__).resolve().parents[2] / "deploy/control-plane/kube-scheduler.yaml").read_text())
(CONTAINER,) = POD["spec"]["containers"]


def test_it_is_what_kubeadm_calls_its_scheduler():
    metadata = POD["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("kube-scheduler", "kube-system")
    assert metadata["labels"] == {"component": "kube-scheduler", "tier": "control-plane"}
    assert POD["spec"]["hostNetwork"]


def test_its_flags_exist_and_it_takes_kube_scheduler_s_lease():
    program, command, *flags = CONTAINER["command"]
    names = {flag.partition("=")[0].removeprefix("--") for flag in flags}
    assert (program, command) == ("moorage", "run")
    assert names <= {flag.name for flag in FLAGS}
    assert "--leader-elect=true" in flags
    assert not {"leader-elect-resource-name", "leader-elect-resource-namespace", "config"} & names


def test_it_may_write_nowhere_but_to_its_scratch():
    security = CONTAINER["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"]: mount.get("readOnly", False) for mount in CONTAINER["volumeMounts"]}
    assert mounts == {"kubeconfig": True, "scratch": False}
    assert {volume["name"] for volume in POD["spec"]["volumes"]} == set(mounts)


def test_the_probes_ask_where_it_listens():
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = CONTAINER[probe]["httpGet"]
        assert (asked["host"], asked["scheme"], asked["port"]) == ("127.0.0.1", "HTTPS", 10259)

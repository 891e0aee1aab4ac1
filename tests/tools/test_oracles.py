"""Programs of Go are built once for their sources, and where they cannot be had the reason is known. A script plays Go here."""

import os
import stat

import pytest

import tools.oracles
from tools.oracles import BuildError, OracleMissingError, Program, programs

GO = """#!/bin/sh
echo "$@" >> {calls}
case "$1" in
list) {listing} ;;
build) {building} ;;
esac
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with one program of two releases, a cache, and no Go."""
    source = tmp_path / "oracles" / "echo"
    source.mkdir(parents=True)
    (source / "main.go").write_text("package main\n")
    (source / "go.mod").write_text("module echo\n")
    (source / "v1.36.mod").write_text("module echo\n")
    monkeypatch.setattr(tools.oracles, "ORACLES", tmp_path / "oracles")
    monkeypatch.setenv("MOORAGE_ORACLES", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    return tmp_path


def put_go(machine, listing=":", building='while [ "$1" != -o ]; do shift; done; echo "#!/bin/sh" > "$2"'):
    place = machine / "bin" / "go"
    place.parent.mkdir(exist_ok=True)
    place.write_text(GO.format(calls=machine / "calls", listing=listing, building=building))
    place.chmod(place.stat().st_mode | stat.S_IXUSR)


def calls(machine):
    return (machine / "calls").read_text().splitlines()


def test_without_go_the_reason_is_said(machine):
    with pytest.raises(OracleMissingError, match="Go is not on this machine"):
        Program("echo").build(10)


def test_a_module_that_cannot_be_had_is_a_reason(machine):
    put_go(machine, listing='echo "main.go:3:2: dial tcp: lookup failed" >&2; exit 1')
    with pytest.raises(OracleMissingError, match=r"a module cannot be had: main\.go:3:2: dial tcp: lookup failed"):
        Program("echo").build(10)


UNTIDY = (
    "main.go:15:2: missing go.sum entry for module providing package k8s.io/api/core/v1",
    "go: updates to go.mod needed; to update it:\n\tgo mod tidy",
)


@pytest.mark.parametrize("said", UNTIDY)
def test_modules_that_are_not_tidy_are_a_fault_of_ours(machine, said):
    (machine / "said").write_text(said)
    put_go(machine, listing=f"/bin/cat {machine / 'said'} >&2; exit 1")
    with pytest.raises(BuildError, match=r"v1\.36\.mod and its \.sum are not tidy, run `go mod tidy -modfile=v1\.36\.mod`"):
        Program("echo", "1.36").build(10)


def test_each_release_of_the_decisions_has_its_sums():
    for one in programs("verdicts"):
        assert one.modules.with_suffix(".sum").is_file(), one


def test_sources_that_do_not_compile_are_a_fault(machine):
    put_go(machine, building='echo "main.go:7: undefined: x" >&2; exit 1')
    with pytest.raises(BuildError, match=r"oracles/echo does not compile:\nmain.go:7: undefined: x"):
        Program("echo").build(10)


def test_a_build_ends_in_time(machine):
    put_go(machine, building="exec /bin/sleep 20")
    with pytest.raises(OracleMissingError, match=r"echo 1\.36 was not built in time"):
        Program("echo", "1.36").build(0.2)


def test_a_program_is_built_again_only_for_other_sources(machine):
    put_go(machine)
    first = Program("echo").build(10)
    assert os.access(first, os.R_OK)
    assert first.is_relative_to(machine / "cache")
    assert Program("echo").build(10) == first
    assert len(calls(machine)) == 2
    (machine / "oracles" / "echo" / "main.go").write_text("package main // changed\n")
    assert Program("echo").build(10) != first
    assert first.exists()  # another work tree may have the sources of before


def test_each_release_has_its_modules(machine):
    put_go(machine)
    assert [str(one) for one in programs()] == ["echo", "echo 1.36"]
    assert len({one.build(10) for one in programs("echo")}) == 2
    assert [line for line in calls(machine) if line.startswith("list") and "v1.36.mod" in line]
    with pytest.raises(OracleMissingError, match=r"there is no v1\.20\.mod in oracles/echo"):
        Program("echo", "1.20").build(10)

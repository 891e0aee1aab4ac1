"""Inputs of runs, in the form in which they are sent to workers. A worker loads them and caches the last ones.

Files are sent as paths with the digest of their content; a worker that finds other content raises an error.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from moorage.basis.inputs.files import InputFile, open_sources
from moorage.errors import InputError
from moorage.laboratory.cluster import Cluster
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.job_kinds import QUEUE_KINDS
from moorage.simulator.kueue.batch_jobs import read_queues


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """A cluster in files, by absolute path. ``size``: their bytes."""

    paths: tuple[str, ...]
    digest: str
    recursive: bool = False
    size: int = 0

    @classmethod
    def of(cls, paths: Sequence[str], *, recursive: bool = False) -> ClusterFiles:
        """Return the cluster in these files and directories.

        Raises  InputError if one cannot be read
        """
        held = tuple(os.path.abspath(path) for path in paths)
        files = list(open_sources(held, recursive=recursive))
        return cls(held, digest_of_files(files), recursive, sum(len(one.data) for one in files))

    def read(self, custom: Sequence[str]) -> ClusterInput:
        """Read the files.

        Raises  InputError, also if they have changed
        """
        files = list(open_sources(self.paths, recursive=self.recursive))
        if digest_of_files(files) != self.digest:
            raise InputError(f"{', '.join(self.paths)}: the content has changed since the sweep began")
        return read_sources(files, custom=custom)


@dataclass(frozen=True, slots=True)
class PackedCluster:
    """A ``Cluster`` object of the calling program, as bytes."""

    data: bytes = field(repr=False)
    digest: str

    @classmethod
    def of(cls, cluster: Cluster) -> PackedCluster:
        """Return a cluster as it is now."""
        return cls(pickle.dumps(cluster), cluster.digest())

    def cluster(self) -> Cluster:
        """Return the unpacked cluster."""
        return _unpacked(self)

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=4)
def _unpacked(packed: PackedCluster) -> Cluster:
    found: Cluster = pickle.loads(packed.data)  # noqa: S301 - the bytes come from the process that sent the job
    return found


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A scheduler configuration; ``text`` is None for kube-scheduler's defaults."""

    text: bytes | None = None
    where: str = "the default configuration"

    @property
    def digest(self) -> str:
        """The digest of the text."""
        return "" if self.text is None else blake2b(self.text, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class QueueFile:
    """Kueue's queues in files."""

    files: ClusterFiles

    @property
    def digest(self) -> str:
        return self.files.digest

    def read(self) -> list[Mapping[str, Any]]:
        """Return the objects of Kueue.

        Raises  InputError if there is no ClusterQueue
        """
        found = read_queues(self.files.read(QUEUE_KINDS), None)
        if not found:
            raise InputError(f"{', '.join(self.files.paths)}: no ClusterQueue found")
        return found


def digest_of_files(files: Iterator[InputFile] | Sequence[InputFile]) -> str:
    """Return the digest of the contents of files, in order."""
    hasher = blake2b(digest_size=16)
    for one in files:
        hasher.update(len(one.data).to_bytes(8, "little"))
        hasher.update(one.data)
    return hasher.hexdigest()

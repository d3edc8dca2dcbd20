"""Several clusters for the tests of a module, started together, since each takes two seconds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from local_cluster import LocalCluster

__all__ = ["started"]


@contextmanager
def started(**clusters: LocalCluster) -> Iterator[dict[str, LocalCluster]]:
    """Start clusters; yield them by name, and stop them at the end."""
    with ExitStack() as stack, ThreadPoolExecutor(len(clusters)) as pool:
        for cluster in [pool.submit(each.__enter__) for each in clusters.values()]:
            stack.push(cluster.result())
        yield clusters

"""The goals for checkpoints, verifications, and large loads."""

from __future__ import annotations

from collections.abc import Callable

from .data import Results
from .goal import Goal
from .measures import (
    Measured,
    beyond_engine,
    cost_of_more,
    cpu_ratio,
    faster,
    growth,
    more_time,
    rate,
    whole_cluster,
)

__all__ = ["CHECKPOINTS", "ENGINES", "SLOTS", "VERIFIED", "scale_goals"]


# By the name of their row.
CHECKPOINTS = {
    f"{name}, checkpoint": Goal(
        "Checkpoints",
        f"{name} with a checkpoint, server's CPU time",
        "checkpoint",
        cpu_ratio("checkpoint", f"{name}, checkpoint", name),
        bound,
        at_most=True,
        operations=1_000_000,
    )
    for name, bound in {"INCRBY": 1.15, "RPUSH": 1.10, "HSETNX": 1.10, "HSET": 1.01}.items()
}
VERIFIED = {
    f"{name}, verify": Goal(
        "Verification",
        f"{name} from columns, rate / rate of the load",
        "verify",
        faster("verify", "verify", "load", f"verify {name}"),
        0.5,
        operations=1_000_000,
    )
    for name in ("SET", "SET EX", "HSET", "SADD", "ZADD", "RPUSH")
}
WRITTEN = {
    "Spark into one server": "Spark to a sink that drops it",
    "Spark into 3+3 nodes": "Spark to a sink that drops it, beside the cluster",
}
ENGINES = {
    row: Goal(
        "Engines",
        f"{row}, time / (servers' CPU time + time of a sink that drops all)",
        "engines",
        beyond_engine(row, dropped),
        1.15,
        at_most=True,
        operations=2_000_000,
    )
    for row, dropped in WRITTEN.items()
} | {
    "Spark reads, fastresp": Goal(
        "Engines",
        "Spark reads hashes, rate / a redis-py pipeline in mapPartitions",
        "engines",
        faster("engines", "Spark reads, fastresp", "Spark reads, redis-py in mapPartitions"),
        3,
        operations=2_000_000,
    )
}
SLOTS = {
    f"{kind}, 8 bytes, 3 nodes": Goal(
        "Scale",
        f"what the slots of 3 nodes cost an encoder, SET of 8 bytes from {kind}",
        "scale",
        more_time(f"{kind}, 8 bytes, 3 nodes", f"{kind}, 8 bytes, without slots"),
        12,
        "ns",
        at_most=True,
        operations=1,
    )
    for kind in ("rows", "columns")
}


def scale_goals() -> list[Goal]:
    area, few, more = "Scale", "1,000,000 into a sink", "100,000,000 into a sink"
    floor = "CPU time of the slowest node, or time of three `redis-cli --pipe`"
    kinds = ("rows", "columns")
    wanted: list[tuple[str, Callable[[Results], Measured], float, str, int]] = [
        (
            f"1,000,000 {kind} into 3+3 nodes of a cluster, time / {floor}",
            *(whole_cluster(f"3+3 fastresp {kind}", "3+3 redis-cli --pipe"), 1.05, "x", 1_000_000),
        )
        for kind in kinds
    ]
    cost = "CPU time per command, 100,000,000 commands against 1,000,000"
    memory = "greatest memory, 100,000,000 commands less 1,000,000"
    wanted.append((cost, cost_of_more(more, few), 1.05, "x", 1))
    wanted.append((memory, growth(more, few), 8, "MiB", 1))
    sinks = [
        Goal(
            area,
            f"SET of 8 bytes from columns into sinks, {where}",
            "scale",
            rate("scale", "scale lanes", f"columns, 8 bytes, {where}"),
            10,
            "million/s",
            operations=1_000_000,
        )
        for where in ("no cluster", "1 node", "2 nodes", "4 nodes", "8 nodes")
    ]
    most = [
        Goal(area, what, "scale", measure, bound, unit, at_most=True, operations=operations)
        for what, measure, bound, unit, operations in wanted
    ]
    clusters, others = most[: len(kinds)], most[len(kinds) :]
    return [*clusters, *SLOTS.values(), *others, *sinks]

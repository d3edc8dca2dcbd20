"""verify, sync and in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest

import fastresp
import fastresp.aio
from fastresp.server.local_server import LocalServer

Verify: TypeAlias = Callable[..., fastresp.VerifyReport]


def verify_asyncio(data: Any, template: Any = None, **options: Any) -> fastresp.VerifyReport:
    return asyncio.run(fastresp.aio.verify(data, template, **options))


@pytest.fixture(scope="module", autouse=True)
def _short_pause() -> Iterator[None]:
    """Shorten the wait before differences are rechecked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastresp.load.verifying.verify.PAUSE_S", 0.05)
        yield


@pytest.fixture(params=[fastresp.verify, verify_asyncio], ids=["sync", "asyncio"])
def verify(request: pytest.FixtureRequest, server: LocalServer) -> Verify:
    """verify against the shared server."""
    return partial(request.param, server=server.url)


@pytest.fixture
def load(server: LocalServer) -> Callable[..., fastresp.Report]:
    """mass_insert into the shared server."""
    return partial(fastresp.mass_insert, server=server.url, transport="socket")

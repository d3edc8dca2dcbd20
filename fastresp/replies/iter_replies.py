"""``iter_replies()`` and ``execute()``: run commands and return their replies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ..encode.row_key import RowKeys
from ..encode.script import resending_of
from ..encode.template import Template, TemplateLike, as_template
from ..outcome.errors import CommandError, EncodeError
from ..outcome.messages import without_nulls_option
from ..outcome.tracebacks import public, shorten
from ..server.options import Nulls, Options
from ..server.preflight import Requirements
from ..server.settings import Server, ServerLike, as_server
from ..sources.chunks import Chunks
from ..sources.source import Data, as_source
from ..transports.base import add_report
from ..transports.connection import LostConnection
from ..transports.driver import Blocking, Emit, Step, open_source, stream
from ..transports.socket import connecting
from .cluster_core import ClusterCore
from .locating import locating
from .reply_core import ReplyCore

__all__ = [
    "exchange_core", "execute", "iter_replies", "one_command", "one_reply", "reply_core",
    "replying",
]  # fmt: skip


@public
def iter_replies(
    data: Data,
    template: TemplateLike = None,
    server: ServerLike | Server = None,
    *,
    on_error: Literal["raise", "collect"] = "raise",
    decode: bool | str | None = None,
    nulls: Nulls = "error",
    timeout: float | None = 30.0,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
) -> Iterator[Any]:
    """Run commands and yield their replies, in order, as they arrive.

    Nothing runs until you request the first reply. Commands are sent over one connection while you
    read replies, and memory stays bounded: if you stop reading, sending stops. Closing or dropping
    the iterator closes the connection; commands in flight may or may not have run. A server that
    evicts keys is first queried for reply sizes (MEMORY USAGE), so that reading evicts no keys.

    In a cluster, each command is routed to the owner of its key, over one connection per node, and
    all nodes work concurrently. Commands of a key run in order, even if its slot moves. If a node
    is lost, or refuses commands for a while, its commands are resent for up to ``timeout`` seconds
    without progress; commands that may have run are resent only if they are idempotent. Commands
    without a key, such as DBSIZE, run on the node named by ``server``. Commands with keys in
    several slots and connection commands, such as WAIT and SELECT, are refused.

    Args:
        data, template, server, nulls, timeout, default: as for ``mass_insert``.
        on_error: ``"raise"`` raises an error reply as a CommandError; ``"collect"`` yields the
            CommandError as the reply. Errors within a reply, such as EXEC's, stay in the reply.
        decode: True or an encoding to get replies as str; by default they are bytes.
        max_reply_bytes: a larger reply closes the connection, as soon as its size is known; None
            for 512 MiB, the largest value that servers accept by default. Each array element counts
            64 bytes more than its size: about the memory of its object.

    Returns:
        An iterator of replies: bytes or str, int, None, or lists of these. Call its ``close()`` to
        stop early.

    Raises:
        CommandError: a reply is an error; earlier replies are yielded first.
        DecodeError: a reply is not text in the encoding; earlier replies are yielded first.
        EncodeError, TemplateError, TransportError, TransportTimeout: as in ``mass_insert``;
            replies to earlier commands are yielded first.
    """
    template = as_template(template)
    options = Options.of(locals())
    core = reply_core(options, decode, template, max_reply_bytes)
    chunks = Chunks(as_source(data, template), template, options)
    chunks.open()
    return stream(replying(core, chunks), failing=shorten)


@public
def execute(
    *arguments: Any,
    server: ServerLike = None,
    decode: bool | str | None = None,
    timeout: float | None = 30.0,
    max_reply_bytes: int | None = None,
) -> Any:
    """Run one command over a new connection, and return its reply.

    In a cluster, the node named by ``server`` runs the command, or redirects it to the key's owner.

    Args:
        *arguments: the command's name and its arguments, as for ``pack``:
            ``execute("CONFIG", "GET", "maxmemory")``.
        server, timeout: as for ``mass_insert``.
        decode, max_reply_bytes: as for ``iter_replies``.

    Returns:
        bytes or str, int, None, or a list of these.

    Raises:
        CommandError: the reply is an error.
        DecodeError: the reply is not text in the encoding.
        TypeError: the arguments are not one command; ``iter_replies`` runs many.
        EncodeError, TransportError, TransportTimeout: as in ``mass_insert``.
    """
    command = one_command(arguments)
    with one_reply():
        [reply] = iter_replies(
            command,
            server=Server(server, Requirements(follow_redirects=True)),
            decode=decode,
            timeout=timeout,
            max_reply_bytes=max_reply_bytes,
        )
    return reply


def one_command(arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    if not arguments or not isinstance(arguments[0], str | bytes):
        raise TypeError(
            "execute() runs one command; pass its arguments, as in execute('GET', 'key'), or use "
            "iter_replies() for many commands"
        )
    return [arguments]


@contextmanager
def one_reply() -> Iterator[None]:
    """Omit the command's index and the advice to pass ``nulls=`` from errors."""
    try:
        yield
    except EncodeError as error:
        error.args = (without_nulls_option(error.args[0]),)
        raise
    except CommandError as error:
        raise CommandError(error.text, arguments=error.arguments) from None


def reply_core(
    options: Options,
    decode: bool | str | None,
    template: Template | None,
    max_reply_bytes: int | None,
) -> ReplyCore:
    """Return a connection, not opened yet, with the options of ``iter_replies``."""
    if options.on_error not in ("raise", "collect"):
        raise ValueError(f"on_error must be 'raise' or 'collect', not {options.on_error!r}")
    encoding = "utf-8" if decode is True else decode or None
    return ReplyCore(
        as_server(options.server, Requirements.of(template, nodes=True)),
        decode=encoding,
        on_error=options.on_error,
        timeout=options.timeout,
        resending=resending_of(template),
        max_reply_bytes=max_reply_bytes,
        keys=RowKeys(template),
    )


def replying(
    core: ReplyCore, chunks: Chunks, kind: Callable[..., ClusterCore] = ClusterCore
) -> Generator[Step | Emit, Any, None]:
    """Connect, and yield replies as they arrive (core); ``kind`` as for ``exchange_core()``."""
    failure = None
    try:
        failure = yield from exchange_core(core, chunks, kind)
        if failure is not None:
            report = (core.cluster or core).report
            add_report(failure, report, str(report))
            raise failure
    except Exception as error:
        yield from locating(chunks.data, [error])
        raise
    finally:
        failure = None  # its traceback refers to this frame, and thus to the data


def exchange_core(
    core: ReplyCore, chunks: Chunks, kind: Callable[..., ClusterCore]
) -> Generator[Step | Emit, Any, Exception | None]:
    """Connect, send commands, and yield results, such as replies or batches of rows (core).

    Args:
        core: the connection to use if the server is not a cluster.
        chunks: the commands.
        kind: creates a core that uses all nodes of a cluster.

    Returns:
        The source's exception; None if the source raised no exception.

    Raises:
        TransportError, TransportTimeout: the server can't be used, or the connection was lost.
    """
    connected: ReplyCore | ClusterCore = core
    chunks.in_order = True
    try:
        yield from open_source(chunks)
        connections, answers = yield from connecting(core.server, core.timeout)
        chunks.configure_for(answers)
        needs = core.server.requirements
        if answers.cluster and (needs.nodes or needs.follow_redirects):
            # Don't resend the commands of a transaction: only some of them would be resent.
            follows = not _has_multi(chunks.template)
            connected = core.cluster = kind(core, connections, answers, follows=follows)
        else:
            if answers.evicts:
                core.ask_for_sizes()
            core.attach(connections[0])
        return (yield from connected.exchange(chunks))
    except LostConnection:
        raise (yield Blocking(connected.loss)) from None
    finally:
        connected.detach()
        chunks.close()


def _has_multi(template: Template | None) -> bool:
    """Return whether a template has MULTI; a cluster refuses MULTI in data without a template."""
    names = [] if template is None else [name for name, *_ in template.commands]
    return any(
        isinstance(part, bytes) and part.upper() == b"MULTI" for parts in names for part in parts
    )

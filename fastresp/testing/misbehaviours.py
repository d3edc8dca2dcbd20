"""The misbehaviours: what each one does, and what a client should do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from .connection import Connection, HangUp, Reply

__all__ = ["MISBEHAVIOURS", "Misbehaviour"]


@dataclass(frozen=True)
class Misbehaviour:
    """One kind of fault of a server.

    Attributes:
        name: its name, for ``Misbehaving()``.
        category: the heading in the table of misbehaviours.
        does: what the server does.
        client_should: what a client should do.
        expect: what a call may end with: ``"reply"``, the real server's reply; ``"error"``, an
            exception, or the real server's reply; ``"any"``, anything but a hang or a crash,
            because not every client can notice this fault.
        command: the only command with wrong replies, such as ``"CLUSTER SLOTS"``; ``""`` for all.
        at_once: whether it begins when a client connects, before the first command.
    """

    name: str
    category: str
    does: str
    client_should: str
    expect: Literal["reply", "error", "any"]
    reply: Reply = field(repr=False)
    command: str = ""
    at_once: bool = False


def instead(reply: bytes) -> Reply:
    """Send these bytes instead of the reply."""
    return lambda connection, command, honest: reply


def before(data: bytes) -> Reply:
    """Send these bytes, and then the reply."""
    return lambda connection, command, honest: data + honest


def then_freeze(data: bytes) -> Reply:
    """Send these bytes, and then nothing more."""

    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        connection.send(data)
        connection.freeze()
        return b""

    return reply


def then_hang_up(data: bytes | int) -> Reply:
    """Send these bytes, or this number of bytes of the reply, and close the connection."""

    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        connection.send(honest[:data] if isinstance(data, int) else data)
        raise HangUp

    return reply


def endless(again: bytes, beginning: bytes = b"") -> Reply:
    """Send these bytes repeatedly."""

    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        connection.send(beginning)
        connection.flood(again)
        return b""

    return reply


def altered(old: bytes, new: bytes) -> Reply:
    """Replace matching bytes in a bulk string or verbatim string, and correct its length."""

    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        if not honest.startswith((b"$", b"=")):
            return honest
        start = 4 if honest.startswith(b"=") else 0  # after the format, such as "txt:"
        text = honest.partition(b"\r\n")[2][:-2]
        text = text[:start] + re.sub(old, new, text[start:])
        return b"%b%d\r\n%b\r\n" % (honest[:1], len(text), text)

    return reply


def of_cluster(slots: bytes) -> Reply:
    """Be a node of a cluster that sends these bytes for CLUSTER SLOTS."""

    def reply(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
        name = b" ".join(command[:2]).upper()
        if name.startswith(b"INFO"):
            return b"$17\r\ncluster_enabled:1\r\n"
        return slots if name == b"CLUSTER SLOTS" else honest

    return reply


def node(host: bytes, port: int = 1, first: int = 0, last: int = 16383) -> bytes:
    """Return a reply to CLUSTER SLOTS with one node."""
    words = first, last, len(host), host, port
    return b"*1\r\n*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%b\r\n:%d\r\n" % words


def redirect_to_itself(kind: bytes) -> Reply:
    return lambda connection, command, honest: b"-%b 1 %b\r\n" % (kind, connection.address.encode())


def byte_by_byte(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    for byte in honest:
        connection.send(bytes([byte]))
    return b""


def late(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    if connection.count == 1:
        connection.wait(1.0)
    return honest


def trickle(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.send(b"$1000\r\n")
    for _ in range(30):
        connection.wait(0.05)
        connection.send(b"x")
    raise HangUp


def half(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.send(honest[: len(honest) // 2])
    raise HangUp


def half_then_freeze(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.send(honest[: len(honest) // 2])
    connection.freeze()
    return b""


def half_close(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.half_close()
    connection.freeze()
    return b""


def reset(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.reset()
    return b""


def never_read(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    connection.wait()
    return b""


def read_after_a_new_byte(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    if connection.count == 1:
        connection.wait_for_more()
    return honest


def fewer(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    return b"" if connection.count % 3 == 0 else honest


def swapped(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    if connection.held:
        return honest + connection.held.pop()
    connection.held.append(honest)
    return b""


def repeated(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    return honest * 2


def shorter(connection: Connection, command: list[bytes], honest: bytes) -> bytes:
    """Announce a bulk string or verbatim string that is one byte longer than it is."""
    if not honest.startswith((b"$", b"=")) or honest.startswith(b"$-"):
        return honest
    length, _, text = honest[1:].partition(b"\r\n")
    return b"%b%d\r\n%b" % (honest[:1], int(length) + 1, text)


CATEGORY_TEXTS = {
    "Valid, but unusual": "These servers keep to the protocol.",
    "Lost and silent connections": "The connection ends or stops; commands may be in doubt.",
    "Wrong number of replies": "Replies name no command: their order is all that a client has.",
    "Invalid replies": "The bytes are not RESP, or a reply is incomplete.",
    "Types of RESP3": "For a client that has not sent `HELLO 3`, these are not RESP.",
    "Replies that never end": "Each ends with the connection after `flood_bytes` bytes.",
    "Error replies": "An error reply to every command.",
    "Wrong types": "Valid RESP instead of every reply, whatever the command.",
    "Clusters": "A node of a cluster, with a wrong reply to `CLUSTER SLOTS`.",
    "Wrong contents": "Valid RESP with wrong contents, in replies to one command.",
}

LOST = "Raise an error for a lost connection, and do not resend a command that may have run."
LIMITED = "Apply its timeout, raise, and close the connection."
OUT_OF_STEP = "Close the connection: every later reply would belong to another command."
INVALID = "Raise a protocol error, and close the connection."
RECEIVED = (
    "Allocate memory for received bytes, not for announced ones; raise at a limit or timeout."
)
DEPTH = "Limit the depth of arrays, and raise; never overflow the stack."
UNEXPECTED = "Raise a protocol error; after `HELLO 3`, return the value."
BOUNDED = "Limit the size of a reply; raise, and close the connection at the limit."
MESSAGES = "Apply its timeout to the whole reply, and bound the memory for messages."
REDIRECTED = "In a cluster, follow it, and raise if that node is down; otherwise raise."
REPORTED = "Raise an error with the text of the reply; the connection stays usable."
CHECKED = "Check the type before use; raise an error that names the command."
USELESS = "Check the contents before use: raise an error, or use a default."
NODES = "Check hosts, ports and slots; raise an error, with control characters escaped."

Row = tuple[str, str, str, Literal["reply", "error", "any"], Reply]

VALID: list[Row] = [
    ("honest", "Replies as the real server does.", "Return the reply.", "reply", before(b"")),
    (
        "one byte at a time", "Sends each byte on its own.",
        "Return the reply, however it is cut into packets.", "reply", byte_by_byte,
    ),
    (
        "late reply", "Delays its first reply by a second.",
        "Wait. After a timeout, close the connection: the late reply must not become the reply "
        "to the next command.", "error", late,
    ),
    (
        "reads nothing until a new byte comes",
        "Executes the first command, but replies only after the client has paused, and then sent "
        "another byte.",
        "Apply its timeout. A PING after a pause makes the server resume.",
        "error", read_after_a_new_byte,
    ),
]  # fmt: skip
CONNECTIONS: list[Row] = [
    ("closes at once", "Closes each connection that it accepts.", LOST, "error", then_hang_up(b"")),
    ("closes without a reply", "Closes instead of a reply.", LOST, "error", then_hang_up(b"")),
    ("closes after 1 byte", "Sends 1 byte of a reply, and closes.", LOST, "error", then_hang_up(1)),
    ("closes after 3 bytes", "Sends 3 bytes of a reply, and closes.", LOST, "error",
     then_hang_up(3)),
    ("reply cut in half", "Sends half of a reply, and closes.", LOST, "error", half),
    ("closes after a reply", "Sends one reply, and closes.",
     "Return it. Connect again before the next command.", "reply", then_hang_up(1 << 30)),
    ("cut in a bulk string", "Sends 3 of 10 bytes of a bulk string, and closes.", LOST, "error",
     then_hang_up(b"$10\r\nabc")),
    ("cut in an array", "Sends 1 of 3 elements of an array, and closes.", LOST, "error",
     then_hang_up(b"*3\r\n$1\r\na\r\n")),
    ("resets the connection", "Sends an RST packet instead of a reply.", LOST, "error", reset),
    ("ends its replies", "Half-closes the connection: ends its replies, and keeps reading.", LOST,
     "error",
     half_close),
    ("never replies", "Reads, and sends nothing.", LIMITED, "error", then_freeze(b"")),
    ("half a reply", "Sends half of a reply, and then nothing.", LIMITED, "error",
     half_then_freeze),
    ("never reads", "Accepts connections, but reads and sends nothing.",
     "Apply its timeout to sending, because the buffers fill up.", "error", never_read),
    ("a byte now and then", "Sends a byte of a bulk string every 0.05 s, and closes after 1.5 s.",
     "Apply its timeout to the whole reply, not to each byte.", "error", trickle),
    ("too many clients", "Sends the error `max number of clients reached`, and closes.",
     "Raise an error with that text.", "error",
     then_hang_up(b"-ERR max number of clients reached\r\n")),
    ("protected mode", "Sends the error `DENIED`, and closes.",
     "Raise an error with that text.", "error",
     then_hang_up(b"-DENIED Redis is running in protected mode because no password is set.\r\n")),
]  # fmt: skip
COUNTS: list[Row] = [
    ("one reply more", "Sends `+OK` after each reply.", OUT_OF_STEP, "any",
     lambda connection, command, honest: honest + b"+OK\r\n"),
    ("replies twice", "Sends each reply twice.", OUT_OF_STEP, "any", repeated),
    ("many replies before", "Sends 20 replies `+OK` before each reply.", OUT_OF_STEP, "any",
     before(b"+OK\r\n" * 20)),
    ("fewer replies", "Leaves out every third reply.",
     "Raise at its timeout, and close the connection.", "any", fewer),
    ("no reply", "Executes commands, and sends nothing.", LIMITED, "error", instead(b"")),
    ("swapped replies", "Holds back each first reply, and sends it after the second.",
     "Raise at its timeout. In a pipeline, no client can notice.", "any", swapped),
]  # fmt: skip
INVALID_REPLIES: list[Row] = [
    (name, does, INVALID, "error", reply)
    for name, does, reply in [
        ("HTTP", "Sends `HTTP/1.1 400 Bad Request` to each client, and closes.",
         then_hang_up(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        ("TLS", "Sends a TLS alert to each client, and closes.",
         then_hang_up(b"\x15\x03\x01\x00\x02\x02\x46")),
        ("wrong first byte", "Sends `?`, and then nothing.", then_freeze(b"?")),
        ("random bytes", "Sends 20 bytes of noise before each reply.",
         before(b"\x9d\x01\xf3z\x88\n*\xc4\x17\x00\xee\r5\xb1\x1b[\xd8\x7f\r\n")),
        ("line end alone", "Sends an empty line, and then nothing.", then_freeze(b"\r\n")),
        ("NUL bytes", "Sends 100 bytes of zeros.", instead(b"\0" * 100)),
        ("line feed alone", "Ends `+OK` without a carriage return.", then_freeze(b"+OK\n")),
        ("no length", "Sends a bulk string without a length.", instead(b"$\r\nabc\r\n")),
        ("length in words", "Sends a bulk string with the length `three`.",
         instead(b"$three\r\nabc\r\n")),
        ("huge length", "Sends a length of 23 digits.", instead(b"$99999999999999999999999\r\n")),
        ("negative bulk string", "Sends a bulk string of -5 bytes.", instead(b"$-5\r\n")),
        ("negative array", "Sends an array of -7 elements.", instead(b"*-7\r\n")),
        ("integer in words", "Sends the integer `seven`.", instead(b":seven\r\n")),
        ("huge integer", "Sends an integer of 23 digits.",
         instead(b":99999999999999999999999\r\n")),
    ]
] + [
    ("bulk string too long", "Sends 8 bytes where 3 are announced.", INVALID, "any",
     instead(b"$3\r\nabcdefgh\r\n")),
] + [
    (name, does, should, "error", reply)
    for name, does, should, reply in [
        ("never a line end", "Sends `$5`, and then nothing.", LIMITED, then_freeze(b"$5")),
        ("bulk string too short", "Announces one byte more than each string has.", LIMITED,
         shorter),
        ("array too short", "Announces 3 elements, and sends 2.", LIMITED,
         then_freeze(b"*3\r\n:1\r\n:2\r\n")),
        ("large bulk string", "Announces a bulk string of 500 MB, and sends 3 bytes.", RECEIVED,
         then_freeze(b"$500000000\r\nabc")),
        ("huge bulk string", "Announces a bulk string of 4 GB, and sends nothing more.", RECEIVED,
         then_freeze(b"$4000000000\r\n")),
        ("huge array", "Announces an array of 4 billion elements, and sends none.", RECEIVED,
         then_freeze(b"*4000000000\r\n")),
        ("deep", "Begins 100,000 nested arrays.", DEPTH, then_freeze(b"*1\r\n" * 100_000)),
        ("deeply nested array", "Sends an integer in 100,000 nested arrays.", DEPTH,
         instead(b"*1\r\n" * 100_000 + b":1\r\n")),
    ]
]  # fmt: skip
RESP3: list[Row] = [
    ("push message", "Sends a push message before each reply.",
     "Raise a protocol error; after `HELLO 3`, hand over the message and return the reply.",
     "error", before(b">2\r\n+a\r\n+b\r\n")),
    ("attribute", "Sends an attribute before each reply.",
     "Raise a protocol error; after `HELLO 3`, return the reply.", "any",
     before(b"|1\r\n+a\r\n+b\r\n")),
    *(
        (name, f"Sends `{shown}` instead of each reply.", UNEXPECTED, "any",
         instead(shown.encode().replace(b" ", b"\r\n") + b"\r\n"))
        for name, shown in {
            "map": "%1 +a :1", "set": "~2 :1 :2", "double": ",1.5", "not a number": ",nan",
            "boolean": "#t", "null of RESP3": "_", "big number": "(12345678901234567890123",
            "verbatim string": "=7 txt:abc",
        }.items()
    ),
    ("bulk error", "Sends `!3 ERR` instead of each reply.",
     "Raise a protocol error; after `HELLO 3`, raise an error with the text of the reply.", "any",
     instead(b"!3\r\nERR\r\n")),
    *(
        (name, f"Sends `{shown}` instead of each reply.", INVALID, "any",
         then_freeze(shown.encode().replace(b" ", b"\r\n") + b"\r\n"))
        for name, shown in {
            "invalid boolean": "#x", "double in words": ",one",
            "streamed string": "$? ;3 abc ;0", "map of half a pair": "%1 +a",
            "huge map": "%4611686018427387905",
        }.items()
    ),
    ("map with an array as key", "Sends a map with an array as key.",
     "Raise an error, or represent the map without hashing its keys.", "any",
     instead(b"%1\r\n*1\r\n:1\r\n:2\r\n")),
]  # fmt: skip
FLOODS: list[Row] = [
    (f"endless {name}", f"Sends {does} without end.", should, "any", endless(*data))
    for name, does, should, data in [
        ("status", "a simple string", BOUNDED, (b"x", b"+")),
        ("error", "an error reply", BOUNDED, (b"x", b"-")),
        ("number", "an integer", BOUNDED, (b"1", b":")),
        ("errors", "error replies", OUT_OF_STEP, (b"-ERR no\r\n",)),
        ("replies", "replies `+OK`", OUT_OF_STEP, (b"+OK\r\n",)),
        ("pushes", "push messages of RESP3", MESSAGES, (b">2\r\n+message\r\n+x\r\n",)),
        ("array", "an array of integers", BOUNDED, (b":1\r\n", b"*4000000000\r\n")),
        ("errors in an array", "an array of errors", BOUNDED, (b"-ERR no\r\n", b"*4000000000\r\n")),
        ("arrays in an array", "an array of arrays", BOUNDED,
         (b"*1\r\n$1\r\nx\r\n", b"*8000000\r\n")),
        ("nested arrays", "arrays within arrays", BOUNDED, (b"*1\r\n",)),
        ("map", "a map of RESP3", BOUNDED, (b":1\r\n", b"%4000000000\r\n")),
        ("bulk string", "a bulk string", BOUNDED, (b"x", b"$4000000000\r\n")),
        ("line ends", "empty lines", INVALID, (b"\r\n",)),
    ]
]  # fmt: skip
ERRORS: list[Row] = [
    ("MOVED to itself", "Redirects each command to its own address, by MOVED.",
     "Limit the number of redirects, and raise.", "error", redirect_to_itself(b"MOVED")),
    ("ASK to itself", "Redirects each command to its own address, by ASK.",
     "Limit the number of redirects, and raise.", "error", redirect_to_itself(b"ASK")),
    *(
        (name, f"Sends `-{text}`.", should, "error", instead(b"-%b\r\n" % text.encode()))
        for name, text, should in [
            ("MOVED", "MOVED 1 127.0.0.1:1", REDIRECTED),
            ("MOVED, cut short", "MOVED", "Raise an error with the text of the reply."),
            ("MOVED to an impossible port", "MOVED 99999 127.0.0.1:99999999",
             "Raise an error with the text of the reply."),
            ("ASK", "ASK 1 127.0.0.1:1", REDIRECTED),
            ("TRYAGAIN", "TRYAGAIN Multiple keys request during rehashing of slot",
             "Retry a limited number of times, and raise."),
            ("CLUSTERDOWN", "CLUSTERDOWN The cluster is down",
             "Retry a limited number of times, and raise."),
            ("LOADING", "LOADING Redis is loading the dataset in memory",
             "Raise, or wait at most its timeout."),
            ("BUSY", "BUSY Redis is busy running a script", REPORTED),
            ("MASTERDOWN", "MASTERDOWN Link with MASTER is down", REPORTED),
            ("READONLY", "READONLY You can't write against a read only replica.",
             "Raise; look for the primary before the next command."),
            ("NOREPLICAS", "NOREPLICAS Not enough good replicas to write.", REPORTED),
            ("MISCONF", "MISCONF Errors writing to the AOF file", REPORTED),
            ("NOAUTH", "NOAUTH Authentication required.", REPORTED),
            ("WRONGPASS", "WRONGPASS invalid username-password pair", REPORTED),
            ("NOPERM", "NOPERM this user has no permissions", REPORTED),
            ("OOM", "OOM command not allowed when used memory > 'maxmemory'.", REPORTED),
            ("NOSCRIPT", "NOSCRIPT No matching script. Please use EVAL.",
             "Send the script once more, not endlessly, and raise."),
            ("EXECABORT", "EXECABORT Transaction discarded because of previous errors.", REPORTED),
            ("LEASE", "LEASE is over",
             "Raise an error with the text of the reply: new codes are allowed."),
        ]
    ),
    ("error without a text", "Sends `-` alone.", "Raise an error whose message is not empty.",
     "error", instead(b"-\r\n")),
    ("error that is not UTF-8", "Sends an error with bytes that are not UTF-8.",
     "Raise an error for the reply, not for its encoding.", "error",
     instead(b"-ERR \xff\xfe\x00\r\n")),
    ("error with control characters", "Sends an error that would clear a terminal.",
     "Escape control characters in messages and logs.", "error",
     instead(b"-ERR \x1b[2Jgone\x07\r\n")),
    ("long error", "Sends an error of 100,000 bytes.", "Raise; cut the message to a few KiB.",
     "error", instead(b"-ERR " + b"\xff" * 100_000 + b"\r\n")),
]  # fmt: skip
TYPES: list[Row] = [
    (f"{name} instead", f"Sends {does}.", CHECKED, "any", instead(reply))
    for name, does, reply in [
        ("array", "an array of two integers", b"*2\r\n:1\r\n:2\r\n"),
        ("array of nulls", "an array of nulls", b"*3\r\n$-1\r\n*-1\r\n$-1\r\n"),
        ("array of arrays", "an array of arrays", b"*2\r\n*2\r\n$1\r\na\r\n:1\r\n*0\r\n"),
        ("empty array", "an empty array", b"*0\r\n"),
        ("integer", "the integer 7", b":7\r\n"),
        ("negative integer", "the smallest integer of 64 bits", b":-9223372036854775808\r\n"),
        ("null", "a null bulk string", b"$-1\r\n"),
        ("null array", "a null array", b"*-1\r\n"),
        ("status", "`+OK`", b"+OK\r\n"),
        ("bulk string", "a bulk string of 3 bytes", b"$3\r\nabc\r\n"),
        ("bytes", "a bulk string that is not UTF-8", b"$4\r\n\xff\x00\r\n\r\n"),
        ("many items", "an array of 3,000 strings", b"*3000\r\n" + b"$1\r\nx\r\n" * 3000),
    ]
]  # fmt: skip
CONTENTS: list[tuple[str, str, str, str, Reply | bytes]] = [
    ("INFO", "words in INFO", "`nonsense` for each value", USELESS,
     altered(rb":[^\r\n]+", b":nonsense")),
    ("INFO", "numbers in INFO", "`-1e999` for each value", USELESS,
     altered(rb":[^\r\n]+", b":-1e999")),
    ("INFO", "INFO of bytes", "bytes that are not UTF-8", USELESS, altered(rb"[a-z]", b"\xff")),
    ("ECHO", "wrong ECHO", "another text", OUT_OF_STEP, b"$5\r\nother\r\n"),
    ("INFO", "list for INFO", "an array", CHECKED, b"*1\r\n:1\r\n"),
    ("CONFIG", "number for CONFIG", "an integer", CHECKED, b":1\r\n"),
    ("CONFIG", "nonsense for CONFIG", "an unknown setting", USELESS,
     b"*2\r\n$1\r\na\r\n$3\r\n-12\r\n"),
    ("CONFIG", "lists for CONFIG", "arrays as name and value", CHECKED, b"*2\r\n*0\r\n*0\r\n"),
    ("COMMAND", "nonsense for COMMAND", "arrays only", USELESS,
     b"*1\r\n*7" + b"\r\n*0" * 7 + b"\r\n"),
    ("COMMAND", "names for COMMAND", "names only", USELESS,
     b"*1\r\n*6" + b"\r\n$1\r\nx" * 6 + b"\r\n"),
    ("TYPE", "nonsense for TYPE", "an array", CHECKED, b"*1\r\n*0\r\n"),
    ("SLOWLOG", "nonsense for SLOWLOG", "a short entry", USELESS, b"*1\r\n*2\r\n$1\r\nx\r\n*0\r\n"),
    ("LATENCY", "nonsense for LATENCY", "a short entry", USELESS, b"*1\r\n*2\r\n*0\r\n$1\r\nx\r\n"),
    ("CLIENT", "nonsense for CLIENT", "fields without values", USELESS, b"$9\r\nid=x a= =\r\n"),
    ("SCAN", "nonsense for SCAN", "integers for cursor and key", CHECKED,
     b"*2\r\n:0\r\n*1\r\n:1\r\n"),
    ("SCAN", "short key for SCAN", "an empty key", "Return it: a key may be empty.",
     b"*2\r\n$1\r\n0\r\n*1\r\n$0\r\n\r\n"),
    ("SCRIPT", "wrong sha", "the SHA1 of another script",
     "Compare it with the SHA1 of the script, and raise.", b"$40\r\n%b\r\n" % (b"0" * 40)),
    ("EXEC", "null for EXEC", "a null, as after a change of a watched key",
     "Report that the transaction was discarded, even without WATCH.", b"*-1\r\n"),
    ("EXEC", "empty EXEC", "no replies",
     "Compare the number of replies with the number of commands, and raise.", b"*0\r\n"),
]  # fmt: skip
CLUSTERS: list[Row] = [
    (name, f"CLUSTER SLOTS has {does}.", NODES, "any", of_cluster(slots))
    for name, does, slots in [
        ("cluster without slots", "no slots", b"*0\r\n"),
        ("integer for CLUSTER SLOTS", "an integer instead of an array", b":7\r\n"),
        ("slots without nodes", "a range of slots without a node", b"*1\r\n*2\r\n:0\r\n:16383\r\n"),
        ("slots beyond 16383", "slots from -5 to 99999", node(b"127.0.0.1", 1, -5, 99999)),
        ("slots in reverse", "slots from 9 to 3", node(b"127.0.0.1", 1, 9, 3)),
        ("node that is down", "a node at a port where nothing listens", node(b"127.0.0.1")),
        ("node with an impossible port", "the port 99999999", node(b"127.0.0.1", 99999999)),
        ("node without a host", "an empty host", node(b"")),
        ("node with a long host", "a host of 100 bytes", node(b"x" * 100)),
        ("node with a huge host", "a host of 1 MB", node(b"x" * 1_000_000)),
        ("node with NUL in its host", "a host with a NUL byte", node(b"a\0b")),
        ("node with control characters", "a host that clears a terminal", node(b"\x1b[2J")),
        ("node that is not ASCII", "a host with the letter é", node("b\u00e9".encode())),
    ]
]  # fmt: skip

AT_ONCE = {"closes at once", "too many clients", "protected mode", "never reads", "HTTP", "TLS"}


def _all() -> Iterator[Misbehaviour]:
    groups = [VALID, CONNECTIONS, COUNTS, INVALID_REPLIES, RESP3, FLOODS, ERRORS, TYPES, CLUSTERS]
    for category, rows in zip([*CATEGORY_TEXTS], groups, strict=False):
        for name, does, should, expect, reply in rows:
            at_once = name in AT_ONCE
            yield Misbehaviour(name, category, does, should, expect, reply, "", at_once)
    for command, name, what, should, data in CONTENTS:
        does, reply = f"{command} returns {what}.", data if callable(data) else instead(data)
        yield Misbehaviour(name, "Wrong contents", does, should, "any", reply, command)


MISBEHAVIOURS: dict[str, Misbehaviour] = {each.name: each for each in _all()}

from .stream import Sink

READ_BYTES: int

def receive(fd: int, sink: Sink, reads: int, milliseconds: int = 0, soon: bool = False) -> bool: ...

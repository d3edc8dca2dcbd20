from .stream import ReplySink

READ_BYTES: int

def receive(
    fd: int, sink: ReplySink, reads: int, milliseconds: int = 0, soon: bool = False
) -> bool: ...

class Undisturbed:
    holding: bool
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

from typing import final

from typing_extensions import Buffer

@final
class Elements:
    @property
    def words(self) -> int: ...

def elements(kind: int, data: Buffer) -> list[bytes]: ...
def stream_nodes_end(kind: int, data: Buffer) -> int: ...

# For the other compiled modules; nothing else is seen from Python.
from typing import Final

DOCUMENT: Final[bytes]

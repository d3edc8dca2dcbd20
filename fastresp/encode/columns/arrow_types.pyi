# For other compiled modules; nothing else is visible from Python.
from typing import Final

DOCUMENT: Final[bytes]
FIELDS: Final[bytes]

from datetime import datetime
from typing import Final

EPOCH: Final[datetime]

"""``verify()``: compare the data in a server with its source."""

"""``verify()``: compare what is in a server with what a source says."""

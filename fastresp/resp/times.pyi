# For the other compiled modules; nothing here is seen from Python.

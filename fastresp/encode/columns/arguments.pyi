# For other compiled modules; nothing here is visible from Python.

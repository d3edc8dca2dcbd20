# Writers for other compiled modules; nothing here is visible from Python.

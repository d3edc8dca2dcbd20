# For compiled modules only.

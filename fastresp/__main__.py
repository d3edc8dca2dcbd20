"""``python -m fastresp``."""

from fastresp.cli import main

if __name__ == "__main__":
    main()

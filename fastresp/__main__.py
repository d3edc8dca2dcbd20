"""``python -m fastresp``, and the command ``fastresp``."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from fastresp.cli import main as run
    except KeyboardInterrupt:
        sys.exit(4)  # Exit.INTERRUPTED, which could not be imported
    run()


if __name__ == "__main__":
    main()

"""``python -m fastresp``, and the command ``fastresp``."""

from .cli.exit_codes import end_at_once

__all__ = ["main"]


def main() -> None:
    """Run the program ``fastresp``."""
    end_at_once()
    from .cli.app import main as run

    run()


if __name__ == "__main__":
    main()

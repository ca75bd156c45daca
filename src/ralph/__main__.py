"""The command `ralph`: which door a word opens."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Asking for the version loads nothing else."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from ralph import __version__

        sys.stdout.write(f"ralph {__version__}\n")
        return
    from ralph.doors.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

"""`python -m bench NAME`, which `scripts/bench` calls."""

import sys

from bench import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

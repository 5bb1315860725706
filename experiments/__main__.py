"""``python -m experiments``."""

import sys

from experiments.command import main

if __name__ == "__main__":
    sys.exit(main("experiments"))

"""``python -m f1`` is the command line, for processes that start others of the same installation."""

import sys

from f1.cli import main

if __name__ == "__main__":
    sys.exit(main())

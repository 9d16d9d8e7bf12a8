"""``python -m actorgraph`` does what the command ``actorgraph`` does."""

import sys

from actorgraph.cli import main

if __name__ == "__main__":
    sys.exit(main())

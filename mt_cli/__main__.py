"""`mt`, the same as `python -m mt_cli`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C ends it with status 130, also while modules are imported."""
    try:
        from mt_cli.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

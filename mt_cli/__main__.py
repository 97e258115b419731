"""`python -m mt_cli` is the same as `mt`."""

from mt_cli.cli.main import main

if __name__ == "__main__":
    main()

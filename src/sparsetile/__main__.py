"""The `sparsetile` command, also reached as `python -m sparsetile`."""

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line and give its exit code.

    Returns:
        0 when all went well, 1 when the command could not do its work, 2 when the command line
        cannot be read, 130 when it was stopped with Ctrl-C.

    Examples:
        >>> callable(main)
        True
    """
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        print(
            f"sparsetile: the command line needs {' and '.join(missing)}, not installed here; "
            "run: pip install 'sparsetile[cli]'",
            file=sys.stderr,
        )
        return 1
    from sparsetile.bench._cli import run

    return run()


if __name__ == "__main__":
    sys.exit(main())

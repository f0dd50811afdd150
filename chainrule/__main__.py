"""`python -m chainrule` is the command `chainrule`, which the application answers."""

import sys
from importlib import import_module


def main() -> int:
    """Run the command line, or say in one line what to install for it."""
    try:
        command = import_module("chainrule_app.cli.main")
    except ModuleNotFoundError as error:
        print(f"chainrule: the command needs the package {error.name!r}: pip install 'chainrule[app]'", file=sys.stderr)
        return 2
    return command.main()


if __name__ == "__main__":
    sys.exit(main())

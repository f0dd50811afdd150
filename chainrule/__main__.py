"""`python -m chainrule` is the command `chainrule`."""

import sys

from chainrule._app.cli.main import main

sys.exit(main())

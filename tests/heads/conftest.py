"""Lets the tests of the heads share their small models."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

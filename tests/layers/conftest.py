"""Lets the tests of the image layers share how they find what an output depends on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

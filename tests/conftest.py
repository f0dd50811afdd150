"""Lets every test import small_models.py, which stands beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

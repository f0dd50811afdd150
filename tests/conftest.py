"""Lets the tests here share the models of test_contract.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The tests here change torch for good: they are collected in the process that `tests/test_devices.py` starts alone."""

import os
import sys
from pathlib import Path

collect_ignore_glob = ["pretend_device.py"] if "PRETEND_DEVICE" in os.environ else ["*.py"]
sys.path.insert(0, str(Path(__file__).parent))

"""The tests here change torch for good: they are collected in the process that `tests/test_devices.py` starts alone."""

import os

collect_ignore_glob = ["pretend_device.py"] if "PRETEND_DEVICE" in os.environ else ["*.py"]

"""The helpers of this folder lie beside its tests, and are imported by subprocesses too: `import training_toy`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

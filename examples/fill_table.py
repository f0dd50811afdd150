"""Train on a frame, and fill in columns and cells that other rows lack: python examples/fill_table.py"""

from sklearn.datasets import load_wine

import chainrule

frame = load_wine(as_frame=True).frame
print(chainrule.fit(frame, budget="30s").fill(frame[:5].drop(columns=["alcohol", "target"])))

"""Train on a frame and draw new rows as a frame: python examples/fit_table.py"""

from sklearn.datasets import load_wine

import chainrule

run = chainrule.fit(load_wine(as_frame=True).frame, budget="30s")
print(run.sample(5))

"""Score the rows of a frame of polars in batches: python examples/map_polars.py"""

import polars
from sklearn.datasets import load_wine

import chainrule

wine = load_wine(as_frame=True).frame
score = chainrule.fit(wine, budget="30s").mapper("score")
rows = polars.from_pandas(wine).lazy()
print(rows.map_batches(score, streamable=True, schema=score(rows.head(0).collect()).schema).collect().head())

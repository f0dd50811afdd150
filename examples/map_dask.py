"""Score the rows of a frame of Dask, partition by partition: python examples/map_dask.py"""

import dask.dataframe
from sklearn.datasets import load_wine

import chainrule

wine = load_wine(as_frame=True).frame
score = chainrule.fit(wine, budget="30s").mapper("score")
rows = dask.dataframe.from_pandas(wine, npartitions=4)
print(rows.map_partitions(score, meta=score(wine.head(0))).compute(scheduler="processes", num_workers=2).head())

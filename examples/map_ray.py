"""Score the rows of a dataset of Ray Data in two processes, block by block: python examples/map_ray.py"""

import ray.data
from sklearn.datasets import load_wine

import chainrule

wine = load_wine(as_frame=True).frame
score = chainrule.fit(wine, budget="30s").mapper("score")
rows = ray.data.from_pandas(wine).repartition(4)
scored = rows.map_batches(score, batch_format="pyarrow", concurrency=2)
print(scored.sum("nats"))

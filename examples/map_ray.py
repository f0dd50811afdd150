"""Score the rows of a dataset of Ray in its tasks, then in two actors: python examples/map_ray.py"""

import ray
from sklearn.datasets import load_wine

import chainrule
from chainrule_app.scale import Mapper

wine = load_wine(as_frame=True).frame
run = chainrule.fit(wine, budget="30s", out="runs/wine", overwrite=True)
rows = ray.data.from_pandas(wine)
print(rows.map_batches(run.mapper("score"), batch_format="pyarrow").sum("nats"))
arguments = {"run": str(run.path.resolve()), "method": "score"}
print(rows.map_batches(Mapper, fn_constructor_kwargs=arguments, batch_format="pyarrow", concurrency=2).sum("nats"))

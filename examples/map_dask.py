"""Score the rows of a frame of Dask in two processes, partition by partition: python examples/map_dask.py"""

import dask.dataframe
from sklearn.datasets import load_wine

import chainrule


def main() -> None:
    wine = load_wine(as_frame=True).frame
    score = chainrule.fit(wine, budget="30s").mapper("score")
    rows = dask.dataframe.from_pandas(wine, npartitions=4)
    scored = rows.map_partitions(score, meta=score(wine.head(0)))
    print(scored.compute(scheduler="processes", num_workers=2)["nats"].sum())


if __name__ == "__main__":  # Dask starts processes that import this file
    main()

"""Score the rows of a frame of Spark in two threads, partition by partition: python examples/map_spark.py"""

from pyspark.sql import SparkSession
from sklearn.datasets import load_wine

import chainrule

wine = load_wine(as_frame=True).frame
score = chainrule.fit(wine, budget="30s").mapper("score")
spark = SparkSession.builder.master("local[2]").getOrCreate()
rows = spark.createDataFrame(wine).repartition(4)
schema = spark.createDataFrame(score(wine)).schema
print(rows.mapInArrow(lambda batches: map(score, batches), schema).agg({"nats": "sum"}).first()[0])

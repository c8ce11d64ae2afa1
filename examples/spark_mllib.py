"""Unmodified MLlib estimators in one Spark application: slaq moves the slots to those that improve most."""

from pyspark.ml.classification import GBTClassifier, LogisticRegression
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as sql

from slaq.spark import SparkCluster, session


def made_up(spark, rows=5_000, features=8):
    """Return labelled rows in several partitions for each slot, cached."""
    columns = [sql.randn(seed=place) for place in range(features)]
    label = (columns[0] * columns[1] + columns[2] + sql.randn(seed=99) > 0).cast("double")
    frame = spark.range(0, rows, 1, 16).select(
        array_to_vector(sql.array(*columns)).alias("features"), label.alias("label")
    )
    return frame.cache()


if __name__ == "__main__":
    spark = session("local[4]")
    df = made_up(spark)
    with SparkCluster(spark) as cluster:
        jobs = [
            cluster.submit(
                lambda spark: LogisticRegression(regParam=0.01, maxIter=10).fit(df), name="logistic"
            ),
            cluster.submit(
                lambda spark: GBTClassifier(maxIter=3, maxDepth=3).fit(df), name="trees", weight=2.0
            ),
            cluster.submit(lambda spark: KMeans(k=5, maxIter=10, seed=1).fit(df), name="clusters"),
        ]
        for job in jobs:
            model = job.result()
            print(
                f"{job.name:<9} {len(job.losses):>3} losses, last {job.losses[-1]:.4f}  {type(model).__name__}"
            )
    spark.stop()

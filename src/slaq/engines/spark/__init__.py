"""Jobs inside one Spark application: MLlib estimators unmodified, and programs over cached partitions."""

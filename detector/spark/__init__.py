"""The archive's snapshots and the detector's predicates on Spark: DataFrame in, DataFrame out."""

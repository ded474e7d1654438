"""The programs that ``spark-submit`` starts; alone in their folder, since Spark puts it on the path before everything else."""

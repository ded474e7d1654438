"""The programs for ``spark-submit``, in a folder of their own because Spark puts it first on the path."""

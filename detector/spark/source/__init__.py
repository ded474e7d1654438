"""The Spark data source ``stilltrue``: a live detector's archive as a DataFrame or a stream."""

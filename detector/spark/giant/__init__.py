"""One giant wait graph, reduced in shards on Spark."""

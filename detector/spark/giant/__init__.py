"""Reduces one giant wait-for graph in shards on Spark."""

"""Dataflow graphs and their asynchronous barrier snapshots: graph, plan, coordinator, a local runtime, regions."""

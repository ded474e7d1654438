"""When and whether a process that `stilltrue run` started joins, and what it is called. Imports nothing of gRPC."""

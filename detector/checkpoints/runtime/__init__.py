"""A small runtime for dataflow graphs on asyncio."""

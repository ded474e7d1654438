"""The shells for HTTP client libraries."""

"""The JSON API, ``/api/v1``; the only data source of the web UI."""

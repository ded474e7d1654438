"""The service's HTTP server: metrics, health, the JSON API and the web UI."""

"""The service's HTTP side: metrics, health and pages."""

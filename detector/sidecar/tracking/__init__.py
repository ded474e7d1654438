"""The program and its calls as the sidecar sees them."""

"""What the detector asks of the Kubernetes API server, and tells it: one small client, and each use of it in a file."""

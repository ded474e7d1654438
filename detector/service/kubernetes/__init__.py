"""Uses of the Kubernetes API server: a small client, and one file for each use."""

"""The service's gRPC side: agents, askers and archive readers, with TLS and roles."""

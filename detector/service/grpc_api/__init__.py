"""The service's gRPC API for agents, clients and archive readers, with TLS and roles."""

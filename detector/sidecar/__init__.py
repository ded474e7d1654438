"""The sidecar: a gRPC proxy for a program in any language, which stamps and records its calls and embeds the agent."""

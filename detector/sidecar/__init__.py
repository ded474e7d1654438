"""The sidecar: a gRPC proxy beside a program of any language, which stamps and records its calls and embeds the agent."""

"""The Stilltrue agent: joins a gRPC process to the detector."""

from stilltrue.agent import Agent

__all__ = ["Agent"]

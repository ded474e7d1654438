"""One process of a scene: a real gRPC server or client with the agent, controlled by JSON lines on standard input.

``python -m detector.demo.process SCENE PROCESS [PORT]`` with SCENE as ``module:NAME``. It prints ``{"port": n}``, reads a first
line ``{"addresses": {process: "host:port"}}``, prints ``{"ready": true}`` once it has connected, and then obeys one command per
line until its input ends, at which it stops.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Protocol

from detector.demo.callers import Callers
from detector.demo.scene import Scene
from detector.demo.servers import AioService, ThreadService
from stilltrue import Agent


class SceneProcess(Protocol):
    """A process of a scene that is listening."""

    port: int

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect to the other processes."""

    def obey(self, command: dict[str, Any]) -> None:
        """Obey a command of the harness."""

    def stop(self) -> None:
        """Stop cleanly."""


def load_scene(where: str) -> Scene:
    """Load the scene ``module:NAME``."""
    module, _, name = where.partition(":")
    scene = getattr(importlib.import_module(module), name)
    if not isinstance(scene, Scene):
        raise TypeError(f"{where} is not a Scene")
    return scene


def start(scene: Scene, name: str, port: int = 0) -> SceneProcess:
    """Start the process ``name`` of ``scene``; ``STILLTRUE_DETECTOR`` names the detector. ``port``: for programs; 0: any."""
    if name in scene.programs:
        module, _, program = scene.programs[name].partition(":")
        made: SceneProcess = getattr(importlib.import_module(module), program)(name, port)
        return made
    service = scene.services.get(name)
    agent = Agent(service=name, instance=name, reactive=service is not None and service.reactive)
    agent.start()
    if service is None:
        return Callers(agent, scene.loads[name])
    return ThreadService(agent, name, service) if service.workers else AioService(agent, name, service)


def main() -> None:
    """Run one process until standard input ends."""
    process = start(load_scene(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
    _print({"port": process.port})
    process.dial(json.loads(sys.stdin.readline())["addresses"])
    _print({"ready": True})
    for line in sys.stdin:
        process.obey(json.loads(line))
    process.stop()
    os._exit(0)  # do not wait for deadlocked workers


def _print(fact: dict[str, Any]) -> None:
    print(json.dumps(fact), flush=True)  # noqa: T201 (the harness reads it)


if __name__ == "__main__":
    main()

"""The Stilltrue agent: joins a gRPC process to the detector, and asks it."""

from stilltrue.agent import Agent
from stilltrue.instrument import instrument, uninstrument
from stilltrue.query import Detector
from stilltrue.settings import SettingRefusedError
from stilltrue.steps import StepError

__all__ = ["Agent", "Detector", "SettingRefusedError", "StepError", "instrument", "uninstrument"]

"""What scripts ask about the chip, answered truthfully: there is none."""

from __future__ import annotations

from stoker.poptorch.errors import Error


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Never: models run on torch devices."""
    return False


def ipuHardwareVersion() -> int:
    """There is none to tell."""
    raise Error("there is no IPU: stoker.poptorch runs models on torch devices. Ask ipuHardwareIsAvailable() first.")


def isRunningOnIpu() -> bool:
    """Never, also inside of a model."""
    return False

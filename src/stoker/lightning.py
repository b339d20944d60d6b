"""The short name of `stoker.integrations.lightning`: `stoker.lightning.DataModule`."""

from stoker.integrations.lightning import DataModule

__all__ = ["DataModule"]

"""Where the model is: the only room that touches an accelerator's memory."""

from stoker.device.pinning import Pinning

__all__ = ["Pinning"]

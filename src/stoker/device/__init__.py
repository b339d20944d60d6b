"""Where the model is: the only room that touches an accelerator's memory.

`device_loader`  batches on the device before they are asked for, from any loader
`lookahead`  the thread that reads ahead, and what it owes to states, errors and early ends
`copies`  how a batch gets there, and who may use which memory until when;  `cuda`  the calls to CUDA, all of them
`tree`  the tensors in a batch;  `pinning`  torch's `pin_memory`
"""

from stoker.device.device_loader import DeviceLoader, Lookahead, to_device
from stoker.device.pinning import Pinning

__all__ = ["DeviceLoader", "Lookahead", "Pinning", "to_device"]

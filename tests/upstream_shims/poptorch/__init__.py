"""For running PopTorch's own tests: a module of its name that forwards to `stoker.poptorch`.

Put `tests/upstream_shims` first on PYTHONPATH. Beside the names there are four things that only those tests need: the
module `poptorch_core`, samplers that call torch's former `Sampler.__init__`, a look into the buffer under the names of
PopTorch's private ring, and warnings on stderr without being asked for.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import torch

import stoker.poptorch
from stoker.poptorch import *  # noqa: F403
from stoker.poptorch import enums, optim, options  # noqa: F401

poptorch_core = ModuleType("poptorch.poptorch_core")
poptorch_core.Error = stoker.poptorch.Error
sys.modules["poptorch.poptorch_core"] = poptorch_core
sys.modules["poptorch.enums"] = enums
sys.modules["poptorch.options"] = options


def _init_sampler(self, data_source=None):
    """What torch's class had until it was dropped: the tests' samplers call it with None."""


def _ring(self):
    """`_worker._data_buffers.indices_mem`: one flag for each place of the buffer, True where a step is ready."""
    stats = self._prefetch.stats()
    flags = [place < stats.ready for place in range(stats.ahead)]
    return SimpleNamespace(_data_buffers=SimpleNamespace(indices_mem=flags))


if "POPTORCH_LOG_LEVEL" not in os.environ:
    stoker.poptorch.setLogLevel("WARN")  # PopTorch always prints its warnings
torch.utils.data.Sampler.__init__ = _init_sampler
stoker.poptorch.AsynchronousDataAccessor._worker = property(_ring)

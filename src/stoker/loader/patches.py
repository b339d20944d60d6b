"""Libraries that change torch's private iterators: what they ask of a loader is refused, not passed over.

SpeechBrain's SaveableDataLoader saves how many batches its iterator has given, and to resume sets a number on the
loader that its patched version of torch's iterator heeds. A loader with an iterator of its own would begin the epoch
again: data seen twice, and nothing said.
"""

from __future__ import annotations

from typing import Any

from stoker.errors import StateError


def refuse_patched_iterators(loader: Any) -> None:
    """StateError if this pass would have to be begun by a patched iterator of torch's."""
    skipped = getattr(loader, "_speechbrain_recovery_skip_to", None)
    if skipped is not None:
        raise StateError(
            f"SpeechBrain's SaveableDataLoader should go on after {skipped} batches, which it does by a patch of "
            "torch's own iterator: Stoker's would begin the epoch again. Resume this run with torch's loader (the "
            "order is the same), or save and load loader.state_dict() instead."
        )

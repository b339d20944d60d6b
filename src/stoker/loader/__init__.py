"""The program's door, where the rooms are joined.

`dataloader`  the class that users put where torch's stands
`passes`      one pass over it: `inline`, or `crewed` by threads or processes
`keys`, `ordered`, `epochs`  which indices make the next batch;  `reseed`, `torch_rng`  randomness of the sample
`state`, `progress`  the place in the data, saved and found again;  `failures`  samples that could not be loaded
`stats`, `tally`, `trace`, `watched`  where the time goes;  `chores`, `page`  what is done about it now and then
`sharing`, `rounds`, `window`  how batches are dealt to workers, and how many at a time
`planned`, `steps`  a `BatchPlan` read for one loader; batches become its steps
`own_arguments`  what was asked beyond torch's arguments, and who sees it;  `dynamo`  hides it all from torch.compile
`patches`     what others do to torch's private iterators, refused
`assemble`    which job and crew a loader needs;  `datapipes`  torch's DataPipes
`probe`, `auto`  measuring a dataset and deciding who loads it

`DataLoader` is imported when first asked for, so that `page` can be read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.loader.dataloader import DataLoader as DataLoader

__all__ = ["DataLoader"]


def __getattr__(name: str) -> Any:
    if name != "DataLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stoker.loader.dataloader import DataLoader

    globals()[name] = DataLoader
    return DataLoader

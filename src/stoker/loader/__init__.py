"""The program's door, where the rooms are joined.

`dataloader`  the class that users put where torch's stands
`passes`      one pass over it: `inline`, or `crewed` by threads or processes
`keys`, `ordered`, `epochs`  which indices make the next batch;  `reseed`, `torch_rng`  randomness of the sample
`state`, `progress`  the place in the data, saved and found again;  `failures`  samples that could not be loaded
`stats`, `trace`  where the time goes
`sharing`, `rounds`, `window`  how batches are dealt to workers, and how many at a time
`planned`, `steps`  a `BatchPlan` read for one loader; batches become its steps
`assemble`    which job and crew a loader needs;  `datapipes`  torch's DataPipes
`probe`, `auto`  measuring a dataset and deciding who loads it
"""

from stoker.loader.dataloader import DataLoader

__all__ = ["DataLoader"]

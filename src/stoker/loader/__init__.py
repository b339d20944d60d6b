"""The program's door, where the rooms are joined.

`dataloader`  the class that users put where torch's stands;  `iterator`  one pass over it `keys`        which indices
make the next batch;  `sharing`  how a batch's rows are dealt to workers `assemble`    which job and crew a loader
needs;  `auto`  measures a dataset and decides;  `datapipes`  torch's DataPipes
"""

from stoker.loader.dataloader import DataLoader

__all__ = ["DataLoader"]

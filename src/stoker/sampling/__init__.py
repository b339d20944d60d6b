"""Which indices make the next batch, and what a sample's randomness is keyed by.

`streams`    the keys of an epoch's batches, and how to find a place in them again
`ordered`    arithmetic order as torch knows samplers;  `grouped`  several batches of a batch sampler as one
`epochs`     which epoch it is, as a trainer says it
`reserves`   which sample takes the place of one that cannot be loaded
`reseed`, `torch_rng`  randomness of the sample;  `generators`  the process's own;  `datapipes`  torch's DataPipes
"""

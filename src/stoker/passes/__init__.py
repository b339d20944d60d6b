"""One pass over the data, from the first batch to the last, whoever loads.

`batch_pass`  what every pass has in common;  `inline`, `crewed`  batches made when asked for, or ahead by a crew
`sharing`, `rounds`, `window`  how batches are dealt to workers, and how many at a time
`steps`       batches become the steps of a plan;  `failures`  samples that could not be loaded
`assemble`    which job and crew a loader needs
"""

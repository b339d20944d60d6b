"""One pass over the data, from the first batch to the last, whoever loads.

`setup`       what a pass is made from;  `course`  what outlives it;  `assemble`  which job, crew and slots it needs
`batch_pass`  what every pass has in common;  `inline`, `crewed`  batches made when asked for, or ahead by a crew
`adaptive`    by hands that change as it goes on;  `here`  a batch made in the thread that asks
`making`      a batch in the making;  `mending`, `failures`  samples that could not be loaded
`sharing`, `rounds`, `window`  how batches are dealt to workers, and how many at a time
`steps`       batches become the steps of a plan
"""

"""Who loads, decided by measuring: `num_workers="auto"`, and files that `stoker tune` wrote.

`probe`      a few samples, measured;  `forecast`  what an epoch will take with given workers
`choice`     the rules of "auto", and the reason in one line
`tuned`      settings kept in a file
"""

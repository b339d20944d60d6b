"""Who loads, decided by measuring: `num_workers="auto"`, and files that `stoker tune` wrote.

`probe`      a few samples, measured;  `forecast`  what an epoch will take with given workers
`choice`     the rules of "auto", and the reason in one line
`size`       how many load, and within which limits;  `controller`  changes it, by what the training loop makes of it
`steering`   the controller at work: readings taken, decisions noted;  `processor`, `memory`  what there is of them
`tuned`      settings kept in a file
"""

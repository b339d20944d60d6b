"""What a loader was asked for, and whether it fits together.

`asked`      the arguments that torch's loader does not have, and who sees them
`checks`     whether they fit together;  `planned`  a `BatchPlan` read for one loader
"""

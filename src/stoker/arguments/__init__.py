"""What a loader was asked for, and what follows from it.

`asked`      the call, kept as it was given, and who sees those arguments that torch does not have
`settle`     rules from that to what torch's constructor gets and what the engine gets
`checks`     whether arguments fit together;  `planned`  a `BatchPlan` read for one loader
"""

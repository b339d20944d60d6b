"""Other people's conventions, translated: each file knows one of them.

`torchdata`   the names of torchdata's stateful loader
`lightning`   a data module for Lightning, by its short name `stoker.lightning`;  `lightning_package`  which of its two
`accelerate`  a loader prepared for Hugging Face's accelerate, and its Trainer
`logging`     statistics to TensorBoard, to Lightning's loggers, or to any function
"""

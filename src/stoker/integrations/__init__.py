"""Other people's conventions, translated: each file knows one of them.

`torchdata`  the names of torchdata's stateful loader
`logging`    statistics to TensorBoard, to Lightning's loggers, or to any function
"""

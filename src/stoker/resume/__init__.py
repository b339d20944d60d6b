"""The place in the data: saved, found again, moved on with every batch.

`place`      the state of a loader, a small dictionary that a person can read
`cursor`     how far a pass has come
`resumed`    the part of a loader that knows its place
"""

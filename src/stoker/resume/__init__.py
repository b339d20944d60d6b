"""The place in the data: saved, found again, moved on with every batch.

`place`      the state of a loader, a small dictionary that a person can read
`data`       what a state is of, and whether it fits
`cursor`     how far a pass has come
"""

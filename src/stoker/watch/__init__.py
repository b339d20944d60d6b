"""Where the time goes, as a loader sees it itself.

`stats`      the statistics that it hands out;  `tally`  counting as passes go along
`trace`      what happened when, for Perfetto;  `loop_clock`  when the training loop waits for somebody who reads ahead
`chores`     what a pass does now and then;  `page`  the page that `stoker top` reads;  `kernel`  memory of processes
`watched`    the part of a loader that answers for itself
"""

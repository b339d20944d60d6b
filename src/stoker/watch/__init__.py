"""Where the time goes, as a loader sees it itself.

`watch`      who watches: one object for a loader, one for each pass, with a call for every event
`stats`      the statistics that are handed out;  `tally`  counting as passes go along
`trace`      what happened when, for Perfetto;  `loop_clock`  when the training loop waits for somebody who reads ahead
`chores`     what is done now and then;  `page`  the page that `stoker top` reads;  `kernel`  memory of processes
"""

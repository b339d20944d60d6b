"""Tables, plots and pages, from saved records only.

`verdict`   what the records say, in sentences
`findings`  a diagnosis for a terminal;  `tried`  what `stoker tune` tried;  `running`  what `stoker top` shows
`table`     means ± standard deviations for a terminal
`facets`    which settings share a panel, which are a line, what they are called and coloured
`plots`     pictures of one number over another, with error bars   (matplotlib: PNG and SVG)
`steps`     pictures of single passes: every wait, and timelines   (matplotlib)
`charts`    the same as interactive charts                         (data for plotly.js)
`page`      all of it in one HTML file that needs no network

Nothing here measures, and nothing here is kept: whatever is shown can be made again from the run's folder.
"""

from __future__ import annotations

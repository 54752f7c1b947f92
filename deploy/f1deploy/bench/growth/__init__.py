"""``f1 bench growth``: how cost grows with what there is more of.

Each curve starts a cluster of its own, or several, and measures a cost at a few sizes. Through the points goes a power
law (:mod:`fit`), whose exponent is held against what is allowed: a whole cost may grow like ``n log n``, a cost of one
operation like ``log n``. Costs are processor time first, which other work on the machine changes less than it changes
time on the clock.

- :mod:`curves`: what a curve is. :mod:`rows`, :mod:`groups`, :mod:`servers`, :mod:`participants`, :mod:`slaves`,
  :mod:`versions`: one each. :mod:`clients`: the operations that they need, for load processes.
- :mod:`show`: curves as a table, as sentences and as SVG.
"""

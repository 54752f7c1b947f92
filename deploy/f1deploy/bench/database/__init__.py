"""``f1 bench database``: the whole cluster through its client, beside what a user would pick instead.

Every comparison is a *contest*: contestants that do the same kind of work take turns (A B A B) in one run on one
machine, while all systems are up and the others idle. A figure is the median of the rounds, with the range that they
span; a ratio is taken in each round by itself, so that a drift of the machine weighs on both sides.

- :mod:`works`: what is compared with what, and what is to be reached: a literal table.
- :mod:`clients`, :mod:`peers`: one operation of each work, against ours and against the peers. They run in load
  processes (:mod:`load`), where each client writes rows of its own, remembers what was acknowledged, and reads a sample
  of it in the end.
- :mod:`systems`: starts the cluster and the peers, and fills them.
- :mod:`rounds`: lets contestants take turns. :mod:`lines`: the same for whole tables, TPC-H's lineitem.
- :mod:`figures`: medians, ranges, ratios, goals. :mod:`show`: the table and the plot.
"""

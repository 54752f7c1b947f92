"""The master: which slaves there are, and which of them may be given queries (F1 section 2).

Slaves beat: each beat names its slave and says all there is to know about it, so that the master keeps nothing on disk
and a new one knows everything as soon as every slave has beaten once. f1servers watch: they are sent the whole list on
each change and, when nothing changes, every ``master.keepalive_ms``.

A slave is in one of these states (:mod:`master.registry`):

* LIVE: it beats and may be given queries;
* SUSPECT: its beats have stopped for ``suspect_ms``, its stream has ended and no other has come for half of that,
  or it says that it cannot work. It gets no queries and is LIVE again with its next beat. A process that is stopped, or
  whose event loop is stuck, sends no beats;
* DRAINING: it is about to end, by order. Forgotten as soon as its stream ends;
* forgotten: silent for ``dead_ms``.

Why the naive way fails: a master that is started anew knows no slave. If it said so, every f1server would give up a
pool that works. For the first ``dead_ms`` of its life its lists are therefore marked as *settling*: they add slaves and
correct what is known of them, but whoever is missing from them is kept. f1servers keep the last list for as long as
there is no master; a slave that dies meanwhile is found out by those who call it.

Nor may a master that was stopped for a while, and wakes up, take its own silence for that of the slaves.

A name belongs to one process. Of two live ones the later start wins; the answer to the other's beats tells it to end.

Left out: a second master. It is soft state; queries go on without it, and the supervisor starts it again.
"""

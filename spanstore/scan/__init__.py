"""Bulk scans: the rows of one group at a timestamp as Arrow record batches (F1 section 7.2: reads are in bulk).

Why not in the spanserver itself
    Decoding half a million rows a second keeps a Python process busy, and while it is busy no commit moves. So the rows
    are read in sibling processes, which have the server's environment open read-only. They are spawned, never forked
    (a forked LMDB environment corrupts its lock table), and run at a lower priority.

Protocol
    1. The server *settles* the timestamp like a read (:class:`spanstore.group.requests.Settle`): the leader picks or
       promises it, or this replica's safe time reaches it; every commit at or below it in the ranges is applied. The
       answer names the applied index as of then, and rests on the lease like any read's.
    2. A worker reads in *steps*. Each step opens its own view of the environment, after the request arrived, checks
       that the view has applied at least the settled index and that the timestamp is not below the garbage mark, reads
       until a batch is full or its time is over (a tenth of a second), closes the view, and only then sends. The next
       step goes on at the key after the last.
    3. Steps need *credits*: a batch is read only when the client has taken another. A slow client costs the few
       batches that its credits allow, and no view is ever open while a worker waits for anybody. That is what keeps
       the file small: a view that stays open keeps LMDB from reusing any page that was freed since.

Why steps see the same rows
    Versions are immutable, and once a timestamp is settled no commit comes at or below it any more. So any later view
    shows the same rows at that timestamp, and a scan that was broken off goes on elsewhere, at another replica even,
    where it stopped. Each chunk says where that is. Versions that the timestamp can see go only when the garbage mark
    has passed it: each step looks at the mark in its own view, and a scan that takes longer than old versions are kept
    ends with SNAPSHOT_TOO_OLD unless its timestamp is pinned. (Once ranges move between groups, every step will also
    have to check the range's epoch in its view, as it now checks the index.)

What may go wrong
    A worker that dies takes its scans with it: they answer UNAVAILABLE and the client goes on at another worker. Its
    slot in LMDB's table of readers is freed by ``reader_check``, which the pool runs when a worker ends and every few
    seconds. A damaged version ends a scan with DATA_CORRUPTION,
    and takes the replica out of service. One that is as it was written and is no row, where cells or parts of keys are
    asked for, ends it with INVALID_ARGUMENT. A worker whose server dies sees the end of its socket.

Selection
    Predicates compare one column with constants, by the equality and order of the tuple codec, and are exact. Rows of
    other tables of the hierarchy are passed over by the number of their key's elements and by one of these elements;
    when many follow one another the worker seeks past them.

Sketches
    Instead of rows, a scan can give how many there are of each table, and where (``sketch``): all else is the same.

Modules: ``plan`` (what is asked), ``keys`` (which keys), ``predicates`` and ``decode`` (Arrow), ``cursor`` (one scan in
steps), ``sketch`` (one that counts), ``frames`` (messages between server and worker), ``worker`` (the process),
``pool`` (the server's side of it), ``inline`` (the same in the server's own process, for the simulator), ``service``
(the gRPC call).
"""

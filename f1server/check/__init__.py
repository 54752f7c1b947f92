"""``f1 check``: is a live database consistent with its schema, by the seven clauses of the schema-change paper?

Purpose
    Definition 4 of *Online, Asynchronous Schema Change in F1* says when a database is consistent with respect to a
    schema. This package evaluates it on a live database as of one timestamp: whatever servers do meanwhile, data and
    schema are read as of the same moment, so that nothing is found that was never there.

How the clauses are read here
    ====== ============================================================================================================
    clause what is looked for
    ====== ============================================================================================================
    1      rows of tables that the schema has not, rows without their parent (a hierarchy is a foreign key by itself),
           values of columns that the schema has not
    2      NULL in a public NOT NULL column; a public lock column without a timestamp, or with one that is later than
           the version that it is in
    3      entries of indexes that the schema has not
    4      rows without their entry in a public index
    5      entries without a row, entries that a row with other values should not have, stored columns with other values
    6      rows that break a public constraint: duplicates in a unique index, dangling foreign keys, false CHECKs
    7      keys and values that cannot be read, or are of no element's type
    ====== ============================================================================================================

    Entries of an index that is not public must be right (clause 5), though they need not be complete.

How it is done
    The key space of the database is divided into parts (:mod:`.parts`), which the client asks for one by one, of any
    f1server and several at a time: a server that dies costs the parts that it was at. A part is scanned in batches;
    what a batch needs to be compared with, entries for rows, rows for entries, parents and referenced rows, is read by
    key, so that memory does not grow with the data. :mod:`.rows` and :mod:`.entries` decide, without input or output;
    :mod:`.judge` reads for them. A pin keeps the timestamp readable until the client is done.

Repair
    Entries follow from rows, so they can be made right: each wrong one in a small transaction that reads row and entry
    again under locks (:mod:`.repair`), under the schema that is current then. What is left over from dropped elements
    is deleted (:mod:`.strays`), and a copy of the schema that differs from the other two is written as they are
    (:mod:`f1server.catalog.copies`). Everything else is reported only: which of two duplicates is wrong is no question
    of storage.
"""

"""Who may do what: roles that log in, and the rights that they have. docs/roles.md explains it to users.

The parts
---------
* :mod:`f1server.access.rights` (pure): what a role may do under one version of the schema.
* :mod:`f1server.access.needs` (pure): what a statement, or the writes of a commit, need.
* :mod:`f1server.access.tokens` (pure): what a session shows to say who it is, signed.
* :mod:`f1server.access.keys`: the keys that sign, which all f1servers share through the storage tier.
* :mod:`f1server.access.guesses` (pure): how long a login waits after others that failed.
* :mod:`f1server.access.login`: the SCRAM exchange, of which a server keeps nothing between its two messages.
* :mod:`f1server.access.gate`: from a token to a role of the database that is asked, for each request.

Why a check holds online
------------------------
Grants are elements of the schema, so servers go by two neighbouring versions of them at a time at most
(schema-change paper, section 3.1). A right is looked up in the version that the work is done under, and work under a
version ends with the lease on it: commits have the lease's end as their deadline, at the storage tier, and strong reads
have timestamps within it. REVOKE returns when no lease on an older version is left. So after it nothing commits, and
nothing is read that was committed after it, under the right that is gone. What a client sends in two steps, statements
first and their commit later, is checked in both.

A check of the text alone would not do: the client of an optimistic transaction keeps its writes itself and could send
any. So what counts is the check of the logical writes at their commit; the statement's own check makes the error come
early, and covers what it reads.
"""

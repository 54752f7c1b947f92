"""Online, asynchronous schema change (Rae et al., VLDB 2013): which states an element passes, and in which order.

:mod:`~f1server.schemachange.states` is figure 3 of the paper as a table, :mod:`~f1server.schemachange.plan` puts the
changes of many elements into its rows, and :mod:`~f1server.schemachange.model` is the paper's formal model as code, by
which tests show that these steps keep a database consistent and that none of them can be left out.
"""

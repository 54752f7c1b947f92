"""Scrubbing: reading everything that a spanserver has on its disk, to find damage before somebody needs the data.

Purpose
-------
A disk returns other bytes than were written, rarely and without a word. A damaged record is noticed when it is read
(it has a checksum); a damaged *page* of LMDB's tree may hide records, and a record that is not found looks like one
that was never written. Nobody verifies pages while reading, and a replica's majority hides nothing, since reads are
answered by one replica. So everything is read regularly, at a rate that the disk does not feel
(``storage.scrub_bytes_per_s``), and checked: pages (:mod:`spanstore.engine.pages`), every record's checksum and form
(:mod:`spanstore.scrub.records`), and what must be there for a group to keep its promises.

Why a process of its own
------------------------
Checking is work in Python that would stall the event loop, and a damaged file read through a memory map can end a
process (SIGBUS, SIGSEGV) or hold it in a loop for ever. The scrub process reads pages with ``pread``, so it should
survive what it finds; if it does not, its death is itself a finding.

How
---
:class:`~spanstore.scrub.online.OnlineScrub` walks in steps. Each opens a view of the environment, which pins its pages,
takes the meta page of just that transaction, walks leaves from where the last step stopped, and closes the view: an
open view keeps the writer from reusing pages. A finding counts if it is found twice. The server starts the process
(:mod:`spanstore.runtime.scrubbing`), keeps the position across restarts, and takes replicas out of service.

:func:`~spanstore.scrub.offline.check_directory` (``f1 check-disk``) reads a directory that no server has open, all of
one state: then the tree's counts and the list of free pages are checked too, so that no page is lost or used twice.

What is not found
-----------------
A page that is an older state of itself (a write that the disk lost) is sound in every respect. Replicas therefore
compare digests of their data as well (:mod:`spanstore.group.digests`).
"""

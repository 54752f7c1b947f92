"""Streams of protobuf messages straight over TCP, for the hops that carry most messages of a cluster and its clients.

gRPC in Python takes a message through threads of its own before the event loop hears of it: 50 us of processor time at
each end, and some 300 us of latency for a message that goes to and fro. The streams between servers are few, long-lived
and ours at both ends, so that the same batches can go as length-prefixed frames on a connection of their own for a
tenth of that (ADR 13). Everything else about them stays what it is: the methods are those of the gRPC services, which
serve them too, errors are gRPC's statuses, and the code above (:mod:`f1common.rpc.streams`) does not know which of both
carries it.

* :mod:`~f1common.rpc.direct.methods`: which streams these are.
* :mod:`~f1common.rpc.direct.frames`: what is on the wire, without I/O.
* :mod:`~f1common.rpc.direct.connection`: one TCP connection, with flow control and keepalive.
* :mod:`~f1common.rpc.direct.dialling`: the client's side, a wrapper around a channel of ``grpc.aio``.
* :mod:`~f1common.rpc.direct.listening`: the server's side, a wrapper around a server of ``grpc.aio``.

Imports run upwards in this list; gRPC is the way of a stream whose server offers nothing, or cannot be reached there.
"""

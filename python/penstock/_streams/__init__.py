"""The Python side of the native streams: what a file object means as a source or destination, and ``relay``.

It imports `_common`. The native core calls ``python_streams`` itself; `penstock.pipes`, `penstock.fifo`, decoding and
the command line call the rest.
"""

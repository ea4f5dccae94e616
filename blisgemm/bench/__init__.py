"""The benchmark harness: what ``python -m blisgemm bench`` and the scripts of ``bench/`` are made of.

Knows: nothing itself; each module knows one thing. Does not know: the command line (``cli.bench``).
Called by ``cli.bench`` and ``bench/``. Nothing of the library imports it.
"""

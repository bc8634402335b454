"""``penstock bench pipeline``: what priorities and pinning do to a stream of assets while other work burns the CPUs.

``cases``      the configurations, and what can be chosen
``storage``    the assets: compressed files, or a simulated storage
``load``       the work in the background
``latency``    the assets through reader, decompressor and processor, timed one by one
``throughput`` many assets as fast as it goes, against a pool of Python threads
``findings``   what the figures of this run say, and how sure that is
``report``     tables for people
``picture``    the distributions of the latencies, drawn
``command``    the command line, and the record
"""

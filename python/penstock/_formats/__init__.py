"""What is known of containers and codecs beyond what libav and FFmpeg tell: one record for each.

It imports nothing of the package.
"""

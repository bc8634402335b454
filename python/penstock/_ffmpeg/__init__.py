"""Encodes video and sound with the FFmpeg program: starts it, feeds it and reports the result. Private.

``encoder`` has the public class, and ``encoder_base`` its base. ``plan`` decides what an encode does,
``session`` runs it, and ``program`` finds, starts and watches FFmpeg. ``command`` builds FFmpeg's arguments, for
encoders and for the decoders in ``_media``.
"""

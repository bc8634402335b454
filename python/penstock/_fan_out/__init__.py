"""One frame to several encoders and streams at once, each of which may be slow or fail.

``fan_out`` has the public class and its thread, ``outputs`` what each output does with a frame. It imports `_encoding`
and below; only `penstock` itself calls it.
"""

"""What every room uses, and no room owns: deadlines, exit and fork, messages, progress, tensors, reports, types.

It imports the errors, the native core, `_platform` and nothing else of the package; everything may import it.
"""

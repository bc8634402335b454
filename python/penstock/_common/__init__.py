"""What every room uses, and no room owns: deadlines, exit and fork, messages, progress, tensors, reports, types.

It imports the errors, the native core and nothing else of the package; everything may import it.
"""

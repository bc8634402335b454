"""Windows. Tested under Wine 10; never run on a real one."""

"""Any frame of a file, by libav in the process (PyAV). Frames in sequence are the matter of `penstock.ffmpeg`."""

"""What all benchmarks share. A benchmark's own file has its jobs, methods, checks, goals and table columns.

`results`    methods, and what their runs found: `Method`, `Run`, `Row`, `Group`
`rounds`     runs the rows of a group in interleaved rounds
`isolated`   runs one case in a process of its own
`accounts`   wall time, CPU time and memory of a block of code
`senders`    feeds frames to a method, for timing and for content checks
`pictures`   the frames: noise, and a moving texture
`ffmpeg`     FFmpeg's command lines, output and version
`files`      nameless files in shared memory
`machine`    what a run was measured on
`goals`      whether a run reached what the project aims at
`tables`     prints a group
`record`     the JSON record
`options`    command-line options
`command`    the course of a benchmark, from the first run to the record
"""

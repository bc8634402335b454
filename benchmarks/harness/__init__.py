"""Everything that the benchmarks share. A benchmark itself has jobs, methods and a content check.

`command`    a benchmark, its command line, and its course from the first run to the record
`methods`    jobs and methods, and what a method needs: `PlainJob`, `FrameJob`, `Method`, `Methods`
`results`    results of the methods' runs: `Run`, `Row`, `Group`
`goals`      what the figures have to reach
`rounds`     runs the rows of a group in interleaved rounds
`isolated`   runs one case in its own process
`accounts`   measures wall time, CPU time and memory of a block of code
`senders`    feeds frames to a method, for timing and for content checks
`feeder`     a program that fills a pipe
`content`    the frames: moving pictures, and noise
`ffmpeg`     FFmpeg's command lines, output and version
`files`      unnamed files in shared memory
`machine`    describes the machine and the software
`tables`     prints a group
`record`     the JSON record
`options`    command-line options
"""

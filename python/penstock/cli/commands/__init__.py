"""One module for each command, which defines it by its own name, and the table of them."""

#: What the help says about each command.
COMMANDS = {
    "convert": "Convert videos to another codec, container, size or rate.",
    "decode": "Decode a video to raw frames or to images.",
    "encode": "Encode raw frames or images to a video.",
    "info": "Show what Penstock finds on this machine.",
    "probe": "Show what video and audio files contain.",
    "relay": "Move bytes from one place to another.",
    "render": "Render a scene on several processes or machines.",
    "tee": "Copy bytes from one place to several.",
}

"""Reading: video and sound in sequence by the FFmpeg program; a file's facts, and any of its frames, by libav (PyAV).

- In sequence: ``decoder`` and ``audio`` have the public classes; ``prefetching`` opens decoders ahead. ``decode_plan``
  chooses FFmpeg's arguments and the pixel conversion. ``decode_session`` runs FFmpeg and reads its output, and
  ``timestamps`` the frames' times. ``seeking`` finds the first frame, ``completeness`` checks that all frames came, and
  ``source`` and ``single_pass`` open the input.
- Facts: ``probing`` reads them into the types of ``info``, and ``frame_times`` the time of each frame. ``opening``
  opens a file in this process. ``output_check`` compares an `Encoder`'s file with what was encoded, and ``like`` makes
  an `Encoder`'s arguments from a file.
- Any frame: ``frames_by_number`` gives frames by number and time, ``index`` maps each frame to its packet, and
  ``random_access`` decodes it. ``video_frame`` is the array that both ways return.
"""

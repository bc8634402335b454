//! What a descriptor leads to, how its close behaves, and what the system does with pages.

/// Kinds of destinations, each written in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Pipe,
    /// A pipe in packet mode, which keeps each write as messages of at most a page (pipe(2), `O_DIRECT`). Only the
    /// descriptor that writes tells.
    Packets,
    /// A socket that accepts any part of a write.
    StreamSocket,
    /// A socket that keeps each write as one message.
    Messages,
    /// A regular file or block device: a write never waits for a reader.
    File,
    /// Terminals, character devices and everything else.
    Other,
}

impl Kind {
    /// Whether it is a pipe. Pipes report unread bytes (`FIONREAD`), and drop them when the last reader closes.
    pub(crate) fn is_pipe(self) -> bool {
        matches!(self, Self::Pipe | Self::Packets)
    }

    pub(crate) fn keeps_messages(self) -> bool {
        matches!(self, Self::Packets | Self::Messages)
    }

    /// Whether several writes may be made as one: nobody can tell where each began.
    pub(crate) fn joins_writes(self) -> bool {
        matches!(self, Self::Pipe | Self::StreamSocket | Self::File)
    }
}

/// How a close behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Pipes, anonymous inodes, and the devices of memory, such as /dev/null.
    AtOnce,
    /// Other sockets: longer than a lock may be held, but nobody is waited for.
    Brief,
    /// Files: it may take long, and report that what the system had accepted was not written (close(2)).
    Reporting,
    /// Other devices: it may take long.
    Slow,
    /// The last close may wait for the peer: a socket that lingers.
    Lingering,
}

/// What vmsplice(2) does with the pages of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vmsplice {
    /// The pipe gets them.
    Shares,
    /// The pipe gets copies, as from write(2). Seen in linux-next in June 2026 (commit e2c0b2368081, "vmsplice: make vmsplice
    /// a trivial wrapper for preadv2/pwritev2").
    Copies,
    /// The system lacks it, or forbids it.
    Refused,
}

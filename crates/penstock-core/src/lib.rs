#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! | to do | use |
//! | --- | --- |
//! | write memory to a descriptor, in order, from a native thread | [`Writer`] |
//! | the same without keeping a writer | [`process::pipe`], [`process::sync`] |
//! | know what became of a write | [`Ticket`] |
//! | hand in memory of any kind | [`Region`], and [`conformance::check_region`] to test it |
//! | read frames from a descriptor, ahead, by a native thread | [`Reader`] |
//! | hand either to code that takes an [`io::Write`](std::io::Write) or [`io::Read`](std::io::Read) | [`ByteWriter`], [`ByteReader`] |
//! | write memory in any async runtime | [`Writer::submit_async`], [`Ticket`], a `Future` |
//! | write and read in tasks of tokio | `AsyncByteWriter`, `AsyncByteReader` (feature `tokio`) |
//! | read frames in any async runtime | `FrameStream`, a `Stream` (feature `futures`) |
//! | transform bytes on their way | [`Transform`]; for pixels, `penstock_pixels::Conversion` (feature `pixels`) |
//! | choose how bytes enter a pipe | [`Mode`], [`ReaderKind`] |
//! | move bytes from one descriptor to another, in the kernel | [`relay()`], [`Relay`], [`relay_in_background`] |
//! | copy one stream to many | [`Tee`] |
//! | create a pipe or a FIFO | [`make_pipe`], [`Fifo`] |
//! | stream assets through decompressors and other stages | the crate `penstock-pipeline` |
//! | give a thread a priority and CPUs | [`ThreadPolicy`], of `penstock-cpu`, which knows the machine's CPUs |
//!
//! The modules, from the lowest layer up. Each imports only from those that stand before it in this table, and
//! `scripts/check_imports.py` reports circles.
//!
//! | module | subject |
//! | --- | --- |
//! | `sys`, `error`, `counter` | the operating system, which no other module names; errors; counters |
//! | `sync` | how threads wait for each other: tickets, queues, locks |
//! | `memory` | who owns the bytes in flight |
//! | `runtime` | threads and how to wake them, forks, the exit of the program |
//! | `pipe` | pipes and FIFOs, and their sizes |
//! | [`writer`](Writer), [`reader`](Reader), [`relay`](relay()) | memory to descriptor, descriptor to memory, descriptor to descriptor |
//! | [`tee`](Tee) | one relay to many outputs |
//! | [`conformance`] | tests for the caller's kinds of memory |

#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(loom))))]
#![cfg_attr(any(loom, windows), allow(dead_code, unused_macros))]

// On Windows, `relay` and `tee` are missing.
#[cfg(not(any(target_os = "linux", windows)))]
compile_error!("penstock-core supports Linux only: it uses splice(2), vmsplice(2), tee(2) and /proc");
#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "penstock-core supports 64-bit targets only: sizes and offsets of files have to fit into a usize"
);

/// Setters that can be chained, each named like its field.
#[cfg(not(loom))]
macro_rules! setters {
    ($options:ident: $($field:ident: $value:ty),*) => {
        impl $options {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $value) -> Self {
                self.$field = $field.into();
                self
            }
        )*}
    };
}

/// `Debug` that gives the name alone: the rest is locked, or belongs to others.
macro_rules! opaque {
    ($name:literal, $($head:tt)*) => {
        $($head)* {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    };
}

mod error;
mod sync;
mod sys;

#[cfg(not(loom))]
pub mod conformance;
#[cfg(not(loom))]
mod counter;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod pipe;
#[cfg(not(loom))]
mod reader;
#[cfg(all(target_os = "linux", not(loom)))]
mod relay;
#[cfg(not(loom))]
mod runtime;
#[cfg(all(target_os = "linux", not(loom)))]
mod tee;
#[cfg(not(loom))]
mod writer;

pub use error::{CustomError, Error};
pub use sync::ticket::{CallbackId, Ticket};

#[cfg(all(feature = "tokio", not(loom)))]
pub use reader::AsyncByteReader;
#[cfg(all(feature = "futures", not(loom)))]
pub use reader::FrameStream;
#[cfg(all(feature = "tokio", not(loom)))]
pub use writer::async_write::AsyncByteWriter;
#[cfg(not(loom))]
pub use {
    memory::{
        pool::{Buffer, Pool, Space},
        region::Region,
        transform::Transform,
    },
    penstock_cpu::{
        AppliedPolicy, ClassLimit, Near, NotNear, PlacementNote, PolicyNote, Priority, PriorityNote,
        SchedulingClass, ThreadPolicy,
    },
    pipe::{
        ends::make_pipe,
        fifo::{Access, Fifo, FifoTicket, Opening},
    },
    reader::{ByteReader, Frame, Reader, ReaderOptions, ReaderStats},
    sys::AsHandle,
    writer::{
        byte_writer::ByteWriter,
        handle::{Writer, WriterOptions},
        rejected::Rejected,
        state::WriterStats,
        transport::choice::{Mode, ReaderKind, Reason, Transport},
    },
};
#[cfg(all(target_os = "linux", not(loom)))]
pub use {
    relay::{
        background::{RelayTicket, relay_in_background},
        handle::{Relay, relay},
        report::{Method, MethodReason, RelayError, RelayMode, RelayOptions, RelayReport},
    },
    tee::{
        handle::{Tee, TeeReport},
        outputs::{Forgotten, TeeOutput},
        report::{OutputReason, OutputReport, TeeEnd, TeePolicy},
    },
};

/// Functions that concern the whole process: writes by descriptor, its end and its forks.
///
/// Programs that keep no [`Writer`] use [`pipe`](process::pipe), [`sync`](process::sync) and [`close`](process::close). The rest
/// is for programs that host others, and end without returning from a `main` of Rust.
#[cfg(not(loom))]
pub mod process {
    pub use crate::{
        runtime::{exit::leave_exit_to_host, task::drain_tasks},
        writer::{
            by_descriptor::{SyncError, close, pipe, sync},
            exit::drain_streams,
            unreported::take_unreported_bytes,
        },
    };
}

/// Threads, queues and waits for Penstock's other crates, so that there is one of each: its threads respect forks, and
/// its waits are checked with loom. And what bindings need beside: waits in slices.
///
/// Semantic versioning does not cover it: those crates depend on exactly this version.
#[doc(hidden)]
pub mod engine {
    pub use crate::sync::monitor::{Guard, Monitor, Side, Wake};
    #[cfg(not(loom))]
    pub use crate::writer::{
        by_descriptor::{Marks, Target, close_at, marks, sync_to, sync_writes, tickets_of},
        job::Mark,
    };
    #[cfg(not(loom))]
    pub use crate::{
        counter::{Counter, Stopwatch},
        runtime::{
            file_source::FileSource,
            fork::{Own, PerProcess},
            fork_fd::ForkFd,
            poll_source::PollSource,
            thread::{Fault, Signals, guarded, spawn, spawn_named},
            waker::Waker,
        },
        sync::{
            channel::{Channel, Stopped, Taken},
            deadline_after,
            gate::Gate,
            lock,
            mailbox::Mailbox,
            passed,
            queue::Limits,
            ticket::{Completion, ticket},
            wait_until,
        },
        sys::{Borrowed, Handle, SysError, handle, pipe::capacity as pipe_capacity},
    };
}

//! Moves raw bytes between memory and file descriptors as fast as the kernel allows, off the caller's thread, and loses or
//! tears none of them.
//!
//! | to do | use |
//! | --- | --- |
//! | write memory to a descriptor, in order, from a native thread | [`Writer`] |
//! | the same without keeping a writer | [`pipe()`], [`sync()`], [`close()`] |
//! | know what became of a write | [`Ticket`] |
//! | hand in memory of any kind | [`Region`] |
//! | read frames from a descriptor, ahead, by a native thread | [`Reader`] |
//! | have other bytes made of it on the way | [`Recipe`], for pixels `penstock_pixels::Conversion` |
//! | choose how bytes enter a pipe | [`Mode`], [`ReaderKind`] |
//! | move bytes from one descriptor to another, in the kernel | [`relay`], [`Relay`], [`relay_in_background`] |
//! | copy one stream to many | [`Tee`] |
//! | have a pipe between two of them | [`Pipe`], [`Fifo`] |
//! | stream assets through decompressors and other stages | [`pipeline::Pipeline`] |
//! | give a thread a priority and CPUs | [`ThreadPolicy`], of `penstock-cpu`, which knows the machine's CPUs |
//!
//! From the front to the kernel: [`writer`](Writer) and `pipes` find the `stream` that a descriptor leads to and put a job into
//! its `queue`; the stream's `worker` lets a `transport` put it into the destination; `sys` makes the system calls. A relay
//! needs no stream: it runs on its caller's thread, or as a task of the `runtime`. A [`pipeline`] has chunks in memory of a
//! `pool` go through channels from part to part; `codec` decompresses them, `latency` keeps the times.
//!
//! ```
//! use std::io::Read;
//! let (mut reader, writer_end) = std::io::pipe()?;
//! let writer = penstock_core::Writer::new(&writer_end, &Default::default())?;
//! let ticket = writer.write(Box::new(b"frame".to_vec()), None)?;
//! ticket.wait()?;
//! writer.close(None)?;
//! drop((writer, writer_end));
//! let mut got = String::new();
//! reader.read_to_string(&mut got)?;
//! assert_eq!(got, "frame");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(loom, allow(dead_code))]

mod completion;
mod error;
mod inbox;
pub mod pipeline;
mod queue;
mod reader;
mod runtime;
mod sync;
mod unheard;

#[cfg(not(loom))]
mod capacity;
#[cfg(not(loom))]
mod codec;
#[cfg(all(test, not(loom)))]
mod faults;
#[cfg(not(loom))]
mod fifo;
#[cfg(not(loom))]
mod inflow;
#[cfg(not(loom))]
mod latency;
#[cfg(not(loom))]
mod meter;
#[cfg(not(loom))]
mod pipe;
#[cfg(not(loom))]
mod pipes;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod prepare;
#[cfg(not(loom))]
mod recipe;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod relay;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod strided;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod transport;
#[cfg(not(loom))]
mod worker;
#[cfg(not(loom))]
mod writer;

/// For `fuzz/` alone, which compiles with this cfg: what is no part of the crate's face.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use std::io::{self, BufReader, Read};

    use crate::codec::{Decoder, Members, Undecoded};
    use crate::pipeline::Codec;
    use crate::pool::Pool;

    /// A stream, in input of so many bytes at a time; what came before an error, and the error.
    pub fn streamed(codec: Codec, input: &[u8], step: usize, most: u64) -> (Vec<u8>, io::Result<()>) {
        let mut output = Vec::new();
        let mut members = Members::new(codec, BufReader::with_capacity(step, input)).take(most);
        let result = members.read_to_end(&mut output).map(drop);
        (output, result)
    }

    /// An asset at once; none for more than `most` bytes.
    pub fn whole(codec: Codec, input: &[u8], most: usize) -> Option<io::Result<Vec<u8>>> {
        match Decoder::new().decode(codec, input, &Pool::new(0), most) {
            Ok(buffer) => Some(Ok(buffer.to_vec())),
            Err(Undecoded::At { error, .. }) => Some(Err(error)),
            Err(_) => None,
        }
    }
}

pub use completion::{CallbackId, Ticket};
pub use error::Error;
pub use rustix::io::Errno;
pub use unheard::take_unheard_bytes;

#[cfg(not(loom))]
pub use {
    fifo::{Access, Fifo, FifoTicket, Opening},
    penstock_cpu::{AppliedPolicy, ThreadPolicy},
    pipe::Pipe,
    pipes::{Marks, Outlet, close, close_at, drain_all, marks, pipe, sync, sync_to, tickets_of},
    pool::{Buffer, Pool},
    reader::{Frame, Reader, ReaderOptions, ReaderStats},
    recipe::Recipe,
    region::Region,
    relay::{
        Forgotten, Method, MethodReason, OutletReport, Relay, RelayError, RelayMode, RelayOptions,
        RelayTicket, Relayed, Tee, TeeEnd, TeeOutlet, TeePolicy, TeeReport, relay, relay_in_background,
    },
    runtime::{exit::drain_tasks, gate::Gate},
    strided::Strided,
    transport::{Mode, ReaderKind, Reason, STAGED_MIN_BYTES, Transport, set_staging_budget},
    writer::{Mark, Options, Rejected, Stats, Writer},
};

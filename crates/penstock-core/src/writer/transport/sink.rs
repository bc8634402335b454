//! What every transport has to handle: short writes, interruptions, full pipes, and a caller who aborts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::runtime::waker::Waker;
use crate::sys::error::Result;
use crate::sys::span::Span;
use crate::sys::wait::{self, Events, Watched};
use crate::sys::{Borrowed, SysError, fd};
use crate::writer::transport::choice::Transport;
use crate::writer::transport::meter::Meter;

/// How long a worker without a waker waits for its reader before it checks for an abort.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Why a worker stopped in the middle of a write.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The caller discarded the write.
    Cut,
    /// The system refused; `rest` is what it did not take.
    Failed { errno: SysError, rest: Span },
}

/// The destination of one write. Handles EINTR, EAGAIN and short writes for every transport.
pub(crate) struct Sink<'a> {
    pub(crate) fd: Borrowed<'a>,
    pub(crate) kind: fd::Kind,
    pub(crate) meter: &'a Meter,
    /// The number of the write that is to be cut.
    pub(crate) cut: &'a AtomicU64,
    pub(crate) number: u64,
    /// Woken after `cut` was set; none if the system had no descriptor for it.
    pub(crate) waker: Option<&'a Waker>,
    /// Called whenever the reader may have made progress.
    pub(crate) on_progress: &'a dyn Fn(),
    /// Called when there is no room: does a short piece of useful work, or returns false if there is none.
    pub(crate) use_wait: &'a dyn Fn() -> bool,
}

impl Sink<'_> {
    /// Pushes the span in pieces. `attempt` may take less, be interrupted, or find no room. An empty span is passed to
    /// it only where it is a message.
    pub(crate) fn push_all(
        &self,
        mut span: Span,
        piece_bytes: usize,
        transport: Transport,
        mut attempt: impl FnMut(Span) -> Result<usize>,
    ) -> std::result::Result<(), Stop> {
        let is_empty_message = span.len() == 0 && self.kind.keeps_messages();
        while span.len() > 0 || is_empty_message {
            // Relaxed: nothing else is published with the number, and a piece later is soon enough.
            if self.cut.load(Ordering::Relaxed) == self.number {
                return Err(Stop::Cut);
            }
            match attempt(span.first(piece_bytes)) {
                Ok(0) if is_empty_message => return Ok(()),
                // Only odd devices return 0 for a length above zero (POSIX). Trying again would spin.
                Ok(0) => {
                    return Err(Stop::Failed { errno: SysError::IO, rest: span });
                }
                Ok(taken) => {
                    self.meter.add_written(transport, taken);
                    span = span.skip(taken);
                    (self.on_progress)();
                }
                Err(error) if error.interrupted() => {}
                Err(error) if error.would_block() => self.wait_for_room(),
                Err(errno) => return Err(Stop::Failed { errno, rest: span }),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) {
        if (self.use_wait)() {
            return;
        }
        let start = Instant::now();
        // Whatever the answer, the next attempt tells what the matter is.
        match self.waker {
            Some(waker) => waker.wait_beside(self.fd, Events::WRITE),
            None => _ = wait::wait(&mut [Watched::new(self.fd, Events::WRITE)], Some(STOP_CHECK)),
        }
        self.meter.worker_blocked.add(start.elapsed());
        (self.on_progress)();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::sys::AsHandle;

    /// Pushes ten bytes through an attempt that answers by a script, and gives the answers that were left.
    fn push(script: Vec<Result<usize>>, cut: u64) -> (std::result::Result<(), Stop>, u64, u32) {
        let (_reader, writer) = std::io::pipe().unwrap();
        let (meter, cut, progress) = (Meter::default(), AtomicU64::new(cut), Cell::new(0));
        let sink = Sink {
            fd: writer.as_handle(),
            kind: fd::Kind::Pipe,
            meter: &meter,
            cut: &cut,
            number: 1,
            waker: None,
            on_progress: &|| progress.set(progress.get() + 1),
            use_wait: &|| false,
        };
        let bytes = [0u8; 10];
        let mut answers = script.into_iter();
        let attempt = |_: Span| answers.next().expect("the script is long enough");
        let outcome = sink.push_all(Span::at(bytes.as_ptr(), 10), 4, Transport::Write, attempt);
        (outcome, meter.written_bytes(), progress.get())
    }

    #[test]
    fn sink_survives_short_writes_interruptions_and_full_pipes() {
        let script = vec![
            Ok(3),
            Err(SysError::INTERRUPTED),
            Ok(1),
            Err(SysError::WOULD_BLOCK),
            Err(SysError::INTERRUPTED),
            Ok(4),
            Ok(2),
        ];
        let (outcome, written, progress) = push(script, 0);
        assert!(outcome.is_ok());
        assert_eq!(written, 10);
        assert_eq!(progress, 5, "four pieces, and the wait for room");
    }

    #[test]
    fn a_failure_says_what_was_not_taken() {
        let (outcome, written, _) = push(vec![Ok(3), Err(SysError::NO_MEMORY)], 0);
        let Err(Stop::Failed { errno, rest }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((errno, rest.len(), written), (SysError::NO_MEMORY, 7, 3));
    }

    #[test]
    fn a_destination_that_takes_nothing_is_a_failure_and_no_endless_loop() {
        let (outcome, ..) = push(vec![Ok(3), Ok(0)], 0);
        assert!(matches!(outcome, Err(Stop::Failed { errno: SysError::IO, .. })));
    }

    #[test]
    fn a_cut_stops_between_pieces() {
        let (outcome, written, _) = push(vec![], 1);
        assert!(matches!(outcome, Err(Stop::Cut)));
        assert_eq!(written, 0);
    }
}

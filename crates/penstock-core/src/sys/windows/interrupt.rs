//! Reads and writes that wait for the other end of a pipe, and what interrupts them.
//!
//! `CancelSynchronousIo` ends the call that a thread is in. Before the thread is in it, there is nothing to cancel. So whoever
//! interrupts repeats it until the thread has left the call.
//!
//! A write that was cancelled does not tell how much the reader had taken. So only [`Interrupt::cut`] ends one, after which
//! nothing of the rest is written. A read that was cancelled has taken nothing, and is made again.

use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::IO::CancelSynchronousIo;
use windows_sys::Win32::System::Threading::{GetCurrentThreadId, OpenThread, THREAD_TERMINATE};

use crate::sys::error::{Result, SysError};
use crate::sys::span::Span;

/// Interrupts the calls of one thread.
#[derive(Debug, Default)]
pub(crate) struct Interrupt(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wanted: Option<Wanted>,
    /// The thread that is in a call, and what ends it.
    calling: Option<(Arc<OwnedHandle>, Wanted)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// Ends reads.
    Wake,
    /// Ends writes, too.
    Cut,
}

impl Interrupt {
    /// Ends a read: the one that waits, or else the next.
    pub(crate) fn wake(&self) {
        self.interrupt(Wanted::Wake);
    }

    /// Ends a read or a write: the one that waits, or else the next.
    pub(crate) fn cut(&self) {
        self.interrupt(Wanted::Cut);
    }

    /// From now on, calls wait again.
    pub(crate) fn clear(&self) {
        self.state().wanted = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interrupt(&self, wanted: Wanted) {
        {
            let mut state = self.state();
            state.wanted = state.wanted.max(Some(wanted));
        }
        while self.cancel(wanted) {
            thread::yield_now();
        }
    }

    /// Whether there is a call that this ends. The lock keeps the thread from any other call meanwhile.
    fn cancel(&self, wanted: Wanted) -> bool {
        let state = self.state();
        let Some((thread, _)) = state.calling.as_ref().filter(|(_, ends)| *ends <= wanted) else {
            return false;
        };
        // SAFETY: the handle is open. It fails while the thread is not yet in its call, or is no longer.
        unsafe { CancelSynchronousIo(thread.as_raw_handle()) };
        true
    }

    /// Reads what is available, and waits if there is nothing: 0 at the end. [`SysError::INTERRUPTED`] if it was woken or cut.
    pub(crate) fn read(&self, pipe: BorrowedHandle<'_>, buffer: &mut [u8]) -> Result<usize> {
        let most = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let answer = self.call(Wanted::Wake, || {
            let mut taken = 0;
            let (handle, start) = (pipe.as_raw_handle(), buffer.as_mut_ptr());
            // SAFETY: the buffer is borrowed mutably until the call returns, which writes at most so many bytes.
            let done = unsafe { ReadFile(handle, start, most, &raw mut taken, ptr::null_mut()) };
            (done, taken)
        });
        match answer {
            Err(error) if error.is_end() => Ok(0),
            answer => answer,
        }
    }

    /// Writes all of the span, and waits for the reader. [`SysError::INTERRUPTED`] if it was cut.
    ///
    /// # Safety
    ///
    /// The span's memory is readable.
    pub(crate) unsafe fn write(&self, pipe: BorrowedHandle<'_>, span: Span) -> Result<usize> {
        let all = u32::try_from(span.len()).unwrap_or(u32::MAX);
        self.call(Wanted::Cut, || {
            let mut taken = 0;
            // SAFETY: the span is readable by the contract above, and the system only reads it.
            let done = unsafe {
                WriteFile(pipe.as_raw_handle(), span.as_ptr(), all, &raw mut taken, ptr::null_mut())
            };
            (done, taken)
        })
    }

    /// A call that what `ends` says ends. Its answer is whether it succeeded, and a number of bytes.
    fn call(&self, ends: Wanted, call: impl FnOnce() -> (i32, u32)) -> Result<usize> {
        let own = this_thread()?;
        {
            let mut state = self.state();
            if state.wanted.is_some_and(|wanted| wanted >= ends) {
                return Err(SysError::INTERRUPTED);
            }
            state.calling = Some((own, ends));
        }
        let (done, bytes) = call();
        // Before anything else changes it.
        let failure = (done == 0).then(SysError::last);
        self.state().calling = None;
        failure.map_or(Ok(bytes as usize), Err)
    }
}

/// A handle of the calling thread by which others cancel its calls.
fn this_thread() -> Result<Arc<OwnedHandle>> {
    thread_local! {
        static OWN: Option<Arc<OwnedHandle>> = open_this_thread();
    }
    OWN.with(|own| own.clone().ok_or(SysError::IO))
}

fn open_this_thread() -> Option<Arc<OwnedHandle>> {
    // SAFETY: neither call takes memory.
    let handle = unsafe { OpenThread(THREAD_TERMINATE, 0, GetCurrentThreadId()) };
    // SAFETY: it was opened here, and nobody else has it.
    (!handle.is_null()).then(|| Arc::new(unsafe { OwnedHandle::from_raw_handle(handle) }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::os::windows::io::AsHandle;
    use std::time::{Duration, Instant};

    use super::*;

    /// Times from none to some that are longer than it takes to enter a call.
    fn times() -> impl Iterator<Item = Duration> {
        (0..200_u64).map(|round| Duration::from_micros(round * 7919 % 400))
    }

    fn pattern() -> Vec<u8> {
        (0..1_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn a_cut_ends_a_write_that_nobody_reads_whenever_it_comes() {
        let bytes = pattern();
        for time in times() {
            let (reader, writer) = pipe().unwrap();
            let interrupt = Interrupt::default();
            let answer = thread::scope(|scope| {
                // SAFETY: the bytes live as long as the scope.
                let write =
                    || unsafe { interrupt.write(writer.as_handle(), Span::at(bytes.as_ptr(), bytes.len())) };
                let worker = scope.spawn(write);
                thread::sleep(time);
                interrupt.cut();
                worker.join().unwrap()
            });
            assert_eq!(answer, Err(SysError::INTERRUPTED));
            drop(reader);
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_however_often_reads_are_woken() {
        let bytes = pattern();
        let (reader, mut writer) = pipe().unwrap();
        let interrupt = Interrupt::default();
        let (got, woken) = thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let (mut got, mut woken, mut piece) = (Vec::new(), 0, [0; 5000]);
                loop {
                    match interrupt.read(reader.as_handle(), &mut piece) {
                        Ok(0) => return (got, woken),
                        Ok(bytes) => got.extend_from_slice(&piece[..bytes]),
                        Err(error) => {
                            assert!(error.interrupted(), "{error}");
                            woken += 1;
                            interrupt.clear();
                        }
                    }
                }
            });
            let mut pieces = bytes.chunks(bytes.len() / 200);
            for time in times() {
                interrupt.wake();
                thread::sleep(time);
                writer.write_all(pieces.next().unwrap()).unwrap();
            }
            drop(writer);
            worker.join().unwrap()
        });
        assert!(got == bytes && woken > 0, "{} bytes, woken {woken} times", got.len());
    }

    #[test]
    fn a_write_that_is_woken_goes_on_and_arrives_whole() {
        let bytes = pattern();
        let (mut reader, writer) = pipe().unwrap();
        let interrupt = Interrupt::default();
        let mut got = Vec::new();
        thread::scope(|scope| {
            let bytes = &bytes;
            let interrupt = &interrupt;
            let worker = scope.spawn(move || {
                // SAFETY: the bytes live as long as the scope.
                unsafe { interrupt.write(writer.as_handle(), Span::at(bytes.as_ptr(), bytes.len())) }
            });
            for _ in 0..20 {
                interrupt.wake();
                thread::sleep(Duration::from_millis(1));
            }
            reader.read_to_end(&mut got).unwrap();
            assert_eq!(worker.join().unwrap(), Ok(bytes.len()));
        });
        assert!(got == bytes);
    }

    #[test]
    fn whoever_interrupts_an_idle_thread_does_not_wait_and_the_next_call_ends() {
        let (reader, _writer) = pipe().unwrap();
        let interrupt = Interrupt::default();
        let start = Instant::now();
        interrupt.wake();
        assert_eq!(interrupt.read(reader.as_handle(), &mut [0]), Err(SysError::INTERRUPTED));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

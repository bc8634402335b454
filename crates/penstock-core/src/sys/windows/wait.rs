//! Waits for the other end of a pipe, and what interrupts them.
//!
//! A read of no bytes waits until a pipe has something, or has ended, and `CancelSynchronousIo` ends the call that a thread is in.
//! Before the thread is in it, there is nothing to cancel. So whoever interrupts sets an event, at which the thread looks before
//! it calls, and cancels until the thread has left the call.
//!
//! A write that was cancelled does not tell how much the reader had taken. So only [`cut`] ends one, and only the write that it
//! names, of which nothing more may be written.

use std::collections::HashMap;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{ptr, thread};

use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::IO::CancelSynchronousIo;
use windows_sys::Win32::System::Threading::{
    CreateEventW, GetCurrentThreadId, OpenThread, ResetEvent, SetEvent, THREAD_TERMINATE, WaitForSingleObject,
};

use super::facts;
use super::handle::{self, Borrowed, Handle, Number};
use super::pipe;
use crate::sys::error::{Result, SysError};
use crate::sys::kind::Kind;
use crate::sys::span::Span;

/// What is waited for, or was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events(bool);

impl Events {
    pub(crate) const NONE: Self = Self(false);
    pub(crate) const READ: Self = Self(true);
    /// Whoever writes waits in the call.
    pub(crate) const WRITE: Self = Self(true);

    pub(crate) fn is_empty(self) -> bool {
        !self.0
    }

    pub(crate) fn has_hung_up(self) -> bool {
        false
    }
}

/// A handle that is waited for.
pub(crate) struct Watched<'a> {
    handle: Borrowed<'a>,
    found: Events,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(handle: Borrowed<'a>, _: Events) -> Self {
        Self { handle, found: Events::NONE }
    }

    /// What was found.
    pub(crate) fn found(&self) -> Events {
        self.found
    }
}

/// Whether there is something to read now, or the end.
pub(crate) fn ready(handle: Borrowed<'_>, _: Events) -> Events {
    Events(facts::kind(handle) != Ok(Kind::Pipe) || pipe::unread_bytes(handle) != Ok(0))
}

/// Waits until the first has something to read, or the second, an interrupt, is set.
pub(crate) fn wait(awaited: &mut [Watched<'_>], at_most: Option<Duration>) -> bool {
    let [source, own] = awaited else {
        thread::sleep(at_most.map_or(BLIND_PAUSE, |at_most| at_most.min(BLIND_PAUSE)));
        return true;
    };
    let answer = if ready(source.handle, Events::READ).is_empty() {
        wait_to_read(own.handle, source.handle)
    } else {
        Ok(())
    };
    if answer.is_err_and(|error| !error.interrupted()) {
        thread::sleep(BLIND_PAUSE); // the next read tells what the matter is
    }
    source.found = Events(answer != Err(SysError::INTERRUPTED));
    own.found = Events(is_set(own.handle));
    true
}

/// Guessed: adds little to any wait, and keeps no processor busy.
const BLIND_PAUSE: Duration = Duration::from_millis(5);

/// Makes what ends a wait for it, from the moment of [`interrupt`] to that of [`clear`].
pub(crate) fn make_interrupt() -> Result<Handle> {
    // SAFETY: neither attributes nor a name are given.
    let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
    if event.is_null() {
        return Err(SysError::last());
    }
    // SAFETY: it was made here, and nobody else has it.
    Ok(unsafe { Handle::from_raw_handle(event) })
}

/// Ends a wait: the one that lasts, or else the next.
pub(crate) fn interrupt(own: Borrowed<'_>) {
    end(own, None);
}

/// Ends a wait, or the write of that number. If neither lasts, the next call comes back before it begins.
pub(crate) fn cut(own: Borrowed<'_>, write: u64) {
    end(own, Some(write));
}

pub(crate) fn clear(own: Borrowed<'_>) {
    // SAFETY: the handle is open.
    unsafe { ResetEvent(own.as_raw_handle()) };
}

fn is_set(own: Borrowed<'_>) -> bool {
    // SAFETY: the handle is open.
    unsafe { WaitForSingleObject(own.as_raw_handle(), 0) == WAIT_OBJECT_0 }
}

/// The threads that are in a call, by their interrupt, and the number of the write; none for a wait.
type Callers = HashMap<Number, (Arc<OwnedHandle>, Option<u64>)>;

fn callers() -> MutexGuard<'static, Callers> {
    static CALLERS: LazyLock<Mutex<Callers>> = LazyLock::new(Mutex::default);
    CALLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end(own: Borrowed<'_>, write: Option<u64>) {
    // SAFETY: the handle is open.
    unsafe { SetEvent(own.as_raw_handle()) };
    while cancel(handle::number(own), write) {
        thread::yield_now();
    }
}

/// Whether there is a call that this ends. The lock keeps the thread from any other call meanwhile.
fn cancel(own: Number, write: Option<u64>) -> bool {
    let callers = callers();
    let Some((thread, _)) = callers.get(&own).filter(|(_, own)| own.is_none() || *own == write) else {
        return false;
    };
    // SAFETY: the handle is open. It fails while the thread is not yet in its call, or is no longer.
    unsafe { CancelSynchronousIo(thread.as_raw_handle()) };
    true
}

/// Waits until there is something to read, or the end. [`SysError::INTERRUPTED`] if the interrupt is set.
fn wait_to_read(own: Borrowed<'_>, pipe: Borrowed<'_>) -> Result<()> {
    let mut taken = 0;
    // SAFETY: no byte is read.
    let read =
        || unsafe { ReadFile(pipe.as_raw_handle(), [0].as_mut_ptr(), 0, &raw mut taken, ptr::null_mut()) };
    match call(own, None, read) {
        Err(error) if error.is_end() => Ok(()),
        answer => answer,
    }
}

/// Writes the span, and waits for its reader. `by` is the interrupt that cuts it, with its number.
/// [`SysError::INTERRUPTED`] if it was cut, or the interrupt was set before, which this resets.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write(
    destination: Borrowed<'_>,
    _: Kind,
    span: Span,
    by: Option<(Borrowed<'_>, u64)>,
) -> Result<usize> {
    let (mut taken, all) = (0, u32::try_from(span.len()).unwrap_or(u32::MAX));
    let taken = &raw mut taken;
    // SAFETY: the span is readable by the contract above, and the system only reads it; `taken` lives until this returns.
    let write =
        || unsafe { WriteFile(destination.as_raw_handle(), span.as_ptr(), all, taken, ptr::null_mut()) };
    match by {
        None if write() == 0 => return Err(SysError::last()),
        None => {}
        Some((own, number)) => call(own, Some(number), write).inspect_err(|error| {
            if error.interrupted() {
                clear(own);
            }
        })?,
    }
    // SAFETY: as above.
    Ok(unsafe { *taken } as usize)
}

/// A call that answers whether it succeeded.
fn call(own: Borrowed<'_>, write: Option<u64>, call: impl FnOnce() -> i32) -> Result<()> {
    let thread = this_thread()?;
    callers().insert(handle::number(own), (thread, write));
    // From here on it is cancelled; whoever came before has set the event.
    let answer = if is_set(own) {
        Err(SysError::INTERRUPTED)
    } else if call() == 0 {
        Err(SysError::last())
    } else {
        Ok(())
    };
    callers().remove(&handle::number(own));
    answer
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
    use std::io::{PipeReader, Read, Write, pipe};
    use std::time::Instant;

    use super::super::handle::lend;
    use super::*;
    use crate::sys::AsHandle;

    /// Times from none to some that are longer than it takes to enter a call.
    fn times() -> impl Iterator<Item = Duration> {
        (0..200_u64).map(|round| Duration::from_micros(round * 7919 % 400))
    }

    fn pattern() -> Vec<u8> {
        (0..1_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn write_all(own: &Handle, pipe: &impl AsHandle, bytes: &[u8]) -> Result<usize> {
        // SAFETY: the bytes are borrowed until this returns.
        let span = Span::at(bytes.as_ptr(), bytes.len());
        unsafe { write(pipe.as_handle(), Kind::Pipe, span, Some((lend(own), 7))) }
    }

    #[test]
    fn a_cut_ends_a_write_that_nobody_reads_whenever_it_comes() {
        let bytes = pattern();
        for time in times() {
            let (_reader, writer) = pipe().unwrap();
            let own = make_interrupt().unwrap();
            let answer = thread::scope(|scope| {
                let worker = scope.spawn(|| write_all(&own, &writer, &bytes));
                thread::sleep(time);
                cut(lend(&own), 7);
                worker.join().unwrap()
            });
            assert_eq!(answer, Err(SysError::INTERRUPTED));
        }
    }

    /// Reads to the end as a worker does; how often it was woken, too.
    fn read_all(own: &Handle, mut reader: &PipeReader) -> (Vec<u8>, u32) {
        let (mut got, mut woken, mut piece) = (Vec::new(), 0, [0; 5000]);
        loop {
            let mut both =
                [Watched::new(reader.as_handle(), Events::READ), Watched::new(lend(own), Events::READ)];
            wait(&mut both, None);
            if !both[1].found().is_empty() {
                woken += 1;
                clear(lend(own));
            }
            if both[0].found().is_empty() {
                continue;
            }
            match reader.read(&mut piece).unwrap() {
                0 => return (got, woken),
                bytes => got.extend_from_slice(&piece[..bytes]),
            }
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_however_often_a_reader_is_woken() {
        let bytes = pattern();
        let (reader, mut writer) = pipe().unwrap();
        let own = make_interrupt().unwrap();
        let (got, woken) = thread::scope(|scope| {
            let worker = scope.spawn(|| read_all(&own, &reader));
            for (time, piece) in times().zip(bytes.chunks(bytes.len() / 200)) {
                interrupt(lend(&own));
                thread::sleep(time);
                writer.write_all(piece).unwrap();
            }
            drop(writer);
            worker.join().unwrap()
        });
        assert!(got == bytes && woken > 0, "{} bytes, woken {woken} times", got.len());
    }

    #[test]
    fn a_write_that_is_woken_or_follows_the_one_that_was_cut_goes_on_and_arrives_whole() {
        let bytes = pattern();
        let (mut reader, writer) = pipe().unwrap();
        let own = make_interrupt().unwrap();
        let mut got = Vec::new();
        thread::scope(|scope| {
            let (own, bytes) = (&own, &bytes);
            let worker = scope.spawn(move || write_all(own, &writer, bytes));
            reader.read_exact(&mut [0; 1]).unwrap(); // the write has begun
            for _ in 0..20 {
                interrupt(lend(own));
                cut(lend(own), 6);
                thread::sleep(Duration::from_millis(1));
            }
            reader.read_to_end(&mut got).unwrap();
            assert_eq!(worker.join().unwrap(), Ok(bytes.len()));
        });
        assert!(got == bytes[1..]);
    }

    #[test]
    fn whoever_interrupts_an_idle_thread_does_not_wait_and_the_next_wait_ends() {
        let (reader, _writer) = pipe().unwrap();
        let own = make_interrupt().unwrap();
        let start = Instant::now();
        interrupt(lend(&own));
        let mut both =
            [Watched::new(reader.as_handle(), Events::READ), Watched::new(lend(&own), Events::READ)];
        wait(&mut both, None);
        assert!(both[0].found().is_empty() && !both[1].found().is_empty());
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

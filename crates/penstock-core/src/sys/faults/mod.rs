//! Failures of system calls, for tests. In other builds `pass` does nothing.

#[cfg(not(test))]
use crate::sys::error::Result;

/// The calls that can be made to fail.
#[cfg_attr(not(test), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    Vmsplice,
    Splice,
    Tee,
    CopyFileRange,
    SetPipeSize,
    NewDescriptor,
    Close,
    Map,
}

/// How many of these bytes the call should ask for, or the failure that a test wants.
#[cfg(not(test))]
#[inline(always)]
#[allow(clippy::unnecessary_wraps)] // it fails in tests
pub(crate) fn pass(_: Call, bytes: usize) -> Result<usize> {
    Ok(bytes)
}

/// Whether vmsplice(2) is to be a copy: `pipe::vmsplice` writes then.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn vmsplice_copies() -> bool {
    false
}

#[cfg(test)]
pub(crate) use scripted::{Fault, Script, pass, play, vmsplice_copies};

#[cfg(test)]
mod tests;

#[cfg(test)]
mod scripted {
    use std::sync::Mutex;
    use std::thread;
    use std::time::Duration;

    use rustix::io::Errno;

    use super::Call;
    use crate::sync::lock;
    use crate::sys::error::Result;

    /// What one call meets.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Fault {
        None,
        /// `EAGAIN` or `EINTR`.
        Passing(Errno),
        /// `ENOMEM`, `EMFILE` or `EBUSY`, where the call can have that.
        Lacking,
        /// So many bytes at most.
        Short(usize),
    }

    /// The faults that calls meet at random, and the calls that the system never makes.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Script {
        pub(crate) faults: Vec<Fault>,
        pub(crate) refused: Vec<(Call, Errno)>,
        pub(crate) vmsplice_copies: bool,
        /// Whether close(2) of a file waits until another script is played, as for a server that does not answer.
        pub(crate) holds_closes: bool,
        pub(crate) state: u64,
        /// How many calls had a short count.
        pub(crate) shortened: u32,
    }

    /// After so many short counts, a script has no more. Guessed: a tee that moves 1 byte at a time for the whole of its data
    /// takes a minute.
    const MOST_SHORTENED: u32 = 5_000;

    static SCRIPT: Mutex<Option<Script>> = Mutex::new(None);

    /// Plays that script in the whole process, or none.
    pub(crate) fn play(script: Option<Script>) {
        *lock(&SCRIPT) = script;
    }

    pub(crate) fn vmsplice_copies() -> bool {
        lock(&SCRIPT).as_ref().is_some_and(|script| script.vmsplice_copies)
    }

    pub(crate) fn pass(call: Call, bytes: usize) -> Result<usize> {
        let holds_closes = || lock(&SCRIPT).as_ref().is_some_and(|script| script.holds_closes);
        while call == Call::Close && holds_closes() {
            thread::sleep(Duration::from_millis(1));
        }
        let mut script = lock(&SCRIPT);
        let Some(script) = script.as_mut() else { return Ok(bytes) };
        if let Some((_, errno)) = script.refused.iter().find(|(refused, _)| *refused == call) {
            return Err((*errno).into());
        }
        // Not in turns: a loop of as many calls would meet the same fault at the same call for ever.
        script.state = script.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1); // Knuth's MMIX
        let index = (script.state >> 33) as usize % (script.faults.len() + 1); // one of them has none
        let fault = script.faults.get(index).copied().unwrap_or(Fault::None);
        let moves_bytes = !matches!(call, Call::SetPipeSize | Call::NewDescriptor | Call::Close | Call::Map);
        match (fault, call) {
            (Fault::Passing(errno), _) if moves_bytes && call != Call::CopyFileRange => Err(errno.into()),
            (Fault::Short(most), _) if moves_bytes && script.shortened < MOST_SHORTENED => {
                script.shortened += 1;
                Ok(bytes.min(most))
            }
            (Fault::Lacking, Call::NewDescriptor) => Err(Errno::MFILE.into()),
            (Fault::Lacking, Call::SetPipeSize) => Err(Errno::BUSY.into()),
            (Fault::Lacking, Call::Read | Call::Close) => Ok(bytes), // have nothing to ask memory for
            (Fault::Lacking, _) => Err(Errno::NOMEM.into()),
            _ => Ok(bytes),
        }
    }
}

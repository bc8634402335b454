//! The pipe whose front all destinations share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::Result;

use crate::capacity;
use crate::error::Error;
use crate::kept::Kept;
use crate::relay::course::{Course, Ends};
use crate::relay::{RelayError, RelayOptions};
use crate::sys::fd::{self, Kind};
use crate::sys::pipe;

/// The pipe whose front all destinations share.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) reader: Kept,
    /// Where that goes which everybody has. Opened beforehand: later there may be no descriptor left.
    pub(super) null: Kept,
    /// For a source that is no pipe: fills the pipe from it. Gone when the source has ended.
    filler: Option<Filler>,
    pub(super) failure: Option<RelayError>,
}

#[derive(Debug)]
struct Filler {
    src: Kept,
    writer: Kept,
    course: Course,
}

impl Front {
    pub(super) fn open(src: BorrowedFd<'_>, kind: Kind) -> std::result::Result<Self, Error> {
        let own = Kept::make(|| fd::duplicate(src))?;
        let null = Kept::make(open_null)?;
        if kind == Kind::Pipe {
            return Ok(Self { reader: own, null, filler: None, failure: None });
        }
        let [reader, writer] = inner_pipe()?;
        let ends = Ends { src: own.as_fd(), dst: writer.as_fd() };
        let course = Course::plan(&ends, &RelayOptions::default())?;
        Ok(Self { reader, null, filler: Some(Filler { src: own, writer, course }), failure: None })
    }

    /// Puts in what the source has and the pipe takes, without waiting.
    pub(super) fn fill(&mut self) {
        while let Some(Filler { src, writer, course }) = &mut self.filler {
            match advance(course, src.as_fd(), writer.as_fd()) {
                Advance::Moved => {}
                Advance::Blocked => return,
                Advance::Ended => self.filler = None,
                Advance::Failed(failure) => {
                    self.failure = Some(failure);
                    self.filler = None;
                }
            }
        }
    }

    pub(super) fn unread_bytes(&self) -> u64 {
        pipe::unread_bytes(self.reader.as_fd()).unwrap_or(0)
    }

    /// What to wait for when the pipe is empty.
    pub(super) fn source(&self) -> BorrowedFd<'_> {
        self.filler.as_ref().map_or(self.reader.as_fd(), |filler| filler.src.as_fd())
    }
}

fn open_null() -> Result<OwnedFd> {
    rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn inner_pipe() -> Result<[Kept; 2]> {
    let ends = Kept::make_all(pipe::make)?;
    if let Ok((id, _)) = fd::identify(ends[1].as_fd()) {
        capacity::grow(ends[1].as_fd(), id);
    }
    Ok(ends)
}

pub(super) enum Advance {
    Moved,
    Blocked,
    Ended,
    Failed(RelayError),
}

/// One step of a relay, without waiting.
pub(super) fn advance(course: &mut Course, src: BorrowedFd<'_>, dst: BorrowedFd<'_>) -> Advance {
    let state = |course: &Course| (course.moved, course.mover.held_bytes());
    let before = state(course);
    match course.run(&Ends { src, dst }, None, Some(Instant::now())) {
        Some(Ok(_)) => Advance::Ended,
        Some(Err(failure)) => Advance::Failed(failure),
        None if state(course) != before => Advance::Moved,
        None => Advance::Blocked,
    }
}

//! The methods by which a relay may move bytes: the choice, one step of each, and what follows where the kernel refuses.

use super::ends::{Ends, Source, Step};
use super::read_write::CopyBuffer;
use super::report::{Method, MethodReason, RelayMode};
use super::{file, splice};
use crate::error::Error;
use crate::sys::SysError;
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind};

/// A method, with its resources and the bytes that it has taken and not given yet.
#[derive(Debug)]
pub(super) enum Mover {
    Splice,
    Through(splice::InnerPipe),
    CopyFileRange,
    SendFile,
    ReadWrite(CopyBuffer),
}

impl Mover {
    pub(super) fn method(&self) -> Method {
        match self {
            Self::Splice => Method::Splice,
            Self::Through(_) => Method::SpliceThroughPipe,
            Self::CopyFileRange => Method::CopyFileRange,
            Self::SendFile => Method::SendFile,
            Self::ReadWrite(_) => Method::ReadWrite,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Through(inner) => inner.held_bytes(),
            Self::ReadWrite(buffer) => buffer.held_bytes(),
            _ => 0,
        }
    }

    /// Moves a piece of at most `left` bytes.
    pub(super) fn step(&mut self, ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
        match self {
            Self::Splice => splice::direct(ends, source, left),
            Self::Through(inner) => inner.step(ends, source, left),
            Self::CopyFileRange => file::copy_range(ends, source, left),
            Self::SendFile => file::send(ends, source, left),
            Self::ReadWrite(buffer) => buffer.step(ends, source, left),
        }
    }

    /// Whether the error means that the method does not support this pair of descriptors (the man pages' `ERRORS`) or is
    /// forbidden here, rather than that one side has failed.
    pub(super) fn is_refused(&self, errno: SysError) -> bool {
        errno.is_refusal_of_pair() && !matches!(self, Self::ReadWrite(_))
    }

    /// Goes on with the next method, from the byte that this one has come to.
    pub(super) fn fall_back(&mut self, reason: MethodReason) {
        let before = std::mem::replace(self, Self::SendFile);
        *self = match before {
            Self::CopyFileRange if reason != MethodReason::NothingToCopy => return,
            Self::Through(inner) => Self::ReadWrite(CopyBuffer::holding(inner.into_bytes())),
            _ => Self::ReadWrite(CopyBuffer::default()),
        };
    }
}

/// The method for this pair of descriptors, and why.
pub(super) fn choose(
    ends: &Ends<'_>,
    source: Kind,
    mode: RelayMode,
) -> std::result::Result<(Mover, MethodReason), Error> {
    let by_hand = |reason| Ok((Mover::ReadWrite(CopyBuffer::default()), reason));
    match (source, ends.destination) {
        _ if mode == RelayMode::ReadWrite => by_hand(MethodReason::Asked),
        (src, dst) if src.keeps_messages() || dst.keeps_messages() => by_hand(MethodReason::KeepsMessages),
        (_, Kind::File) if fd::appends(ends.dst) => by_hand(MethodReason::Appends),
        (_, Kind::StreamSocket) if splice::would_wait_inside(ends.dst) => by_hand(MethodReason::WouldWait),
        (Kind::Pipe, _) | (_, Kind::Pipe) => Ok((Mover::Splice, MethodReason::APipe)),
        (Kind::File, Kind::File) => Ok((Mover::CopyFileRange, MethodReason::BothAreFiles)),
        (Kind::File, _) => Ok((Mover::SendFile, MethodReason::SourceIsFile)),
        _ => {
            let inner = splice::InnerPipe::make().map_err(Error::of_system)?;
            Ok((Mover::Through(inner), MethodReason::NeitherIsPipe))
        }
    }
}

//! Files copied by the kernel.

use super::ends::{Ends, Source, Step};
use super::splice::{room_bytes, socket_room_bytes};
use crate::sys::error::Result;
use crate::sys::fd::Kind;
use crate::sys::{SysError, file};

/// Bytes copied at once from file to file. Nobody waits at the other end; this only bounds how long a signal, a
/// deadline or a cancellation has to wait: 16 MiB take some 10 ms from page cache to page cache.
const FILE_PIECE_BYTES: u64 = 16 << 20;

/// copy_file_range(2), which on some file systems shares the blocks instead of copying them.
pub(super) fn copy_range(ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
    let at_most = left.min(FILE_PIECE_BYTES) as usize;
    file::copy_range(ends.src, source.position.as_mut(), ends.dst, at_most).map(Step::direct)
}

/// What is asked for where the kernel may wait: no call moves more than 2 GiB (sendfile(2)).
const MOST_BYTES: u64 = 1 << 30;

/// sendfile(2).
///
/// A socket is given what it has room for: TCP's grows to some MiB, and 128 MiB take 67 calls instead of the 512 of
/// 256 KiB, and 0.7 of their CPU time (2-core x86-64 VM, Linux 6.18, 2026-11-29).
pub(super) fn send(ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
    let at_most = match ends.destination {
        Kind::File => left.min(FILE_PIECE_BYTES) as usize,
        Kind::StreamSocket if ends.may_wait => left.min(MOST_BYTES) as usize,
        Kind::StreamSocket => left.min(socket_room_bytes(ends) as u64) as usize,
        _ => room_bytes(ends, left),
    };
    if at_most == 0 {
        return Err(SysError::WOULD_BLOCK);
    }
    file::send(ends.src, source.position.as_mut(), ends.dst, at_most).map(Step::direct)
}

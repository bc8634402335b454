//! Decompresses a stream of consecutive members as it arrives.

use std::io::{self, BufRead, Read};

use super::format::{Codec, truncated};
use super::input::Peeked;
use super::member::Member;
use super::table::format_of;

/// Decompresses its input. Errors: `UnexpectedEof` if the input ends too early, `InvalidData` if it is invalid, and the
/// input's own.
pub(crate) struct Members<R> {
    input: Peeked<R>,
    codec: Codec,
    max_window_bytes: usize,
    member: Option<Box<dyn Member>>,
    /// Whether the member may return more without further input, which then must not be waited for.
    has_more: bool,
    /// Whether this is not the first member.
    has_begun: bool,
    has_ended: bool,
}

impl<R: BufRead> Members<R> {
    /// What a member needs besides its output is at most `max_window_bytes`, and what its format always takes: some megabytes.
    pub(crate) fn new(codec: Codec, input: R, max_window_bytes: usize) -> Self {
        Self {
            input: Peeked::new(input),
            codec,
            max_window_bytes,
            member: None,
            has_more: false,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Bytes of the input consumed so far.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.input.taken_bytes
    }

    pub(crate) fn input(&mut self) -> &mut R {
        &mut self.input.inner
    }

    /// Begins the next member; none at the end.
    fn next_member(&mut self) -> io::Result<Option<Box<dyn Member>>> {
        self.codec = self.input.codec(self.codec)?;
        if self.input.peek(4)?.is_empty() {
            return if self.input.taken_bytes > 0 { Ok(None) } else { Err(truncated()) };
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        format_of(self.codec)?.next_member(&mut self.input, is_first, self.max_window_bytes)
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        if output.is_empty() {
            return Ok(0);
        }
        while !self.has_ended {
            let Some(member) = &mut self.member else {
                self.member = self.next_member()?;
                self.has_ended = self.member.is_none();
                continue;
            };
            let (bytes, is_over) = member.read(&mut self.input, output, &mut self.has_more)?;
            if is_over {
                self.member = None;
                self.has_more = false;
            }
            if bytes > 0 {
                return Ok(bytes);
            }
        }
        Ok(0)
    }
}

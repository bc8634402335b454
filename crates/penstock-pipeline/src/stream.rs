//! Decompresses a stream that comes in pieces.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use super::chunk::{Cause, Chunk, ChunkError};
use super::graph::{Item, Port};
use crate::codec::{Codec, Members};
use penstock_core::Buffer;
use penstock_core::engine::Taken;

/// The pieces as one reader, which waits for the next piece when it needs it.
struct Pieces<'a> {
    port: &'a Port<'a>,
    /// The present or last piece. Output is named after it.
    piece: Option<Chunk>,
    from: usize,
    has_ended: bool,
    is_stopped: bool,
    /// The failure of a part before.
    fault: Option<Arc<ChunkError>>,
    waited_ns: u64,
}

impl Pieces<'_> {
    /// Whether the next byte would have to be waited for.
    fn would_wait(&self) -> bool {
        !self.has_ended && self.rest().is_empty() && self.port.input().would_wait()
    }

    fn rest(&self) -> &[u8] {
        self.piece.as_ref().map_or(&[], |piece| &piece[self.from..])
    }

    fn next_piece(&mut self) -> io::Result<()> {
        let before_ns = self.port.graph.now_ns();
        let taken = self.port.input().take(None);
        let now_ns = self.port.graph.now_ns();
        self.waited_ns += now_ns - before_ns;
        match taken {
            Taken::Item(_, Ok(piece)) => {
                self.port.meter.took(now_ns.saturating_sub(piece.queued_ns()), piece.len());
                self.piece = Some(piece);
                self.from = 0;
            }
            Taken::Item(_, Err(fault)) => {
                self.fault = Some(fault);
                return Err(io::ErrorKind::Other.into());
            }
            Taken::Ended => self.has_ended = true,
            Taken::Stopped | Taken::NotYet => {
                self.is_stopped = true;
                return Err(io::ErrorKind::Other.into());
            }
        }
        Ok(())
    }
}

impl BufRead for Pieces<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.rest().is_empty() && !self.has_ended {
            self.next_piece()?;
        }
        Ok(self.rest())
    }

    fn consume(&mut self, bytes: usize) {
        self.from += bytes;
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

/// A stream in progress.
struct Stream<'a> {
    members: Members<Pieces<'a>>,
    port: &'a Port<'a>,
    offset: u64,
    index: u64,
}

/// The worker of a stage that decompresses a stream. Its output has pieces of at most `piece_bytes`, and is passed on
/// before more input is waited for.
pub(super) fn decompress(port: &Port<'_>, codec: Codec, piece_bytes: usize) {
    let pieces =
        Pieces { port, piece: None, from: 0, has_ended: false, is_stopped: false, fault: None, waited_ns: 0 };
    let mut stream = Stream {
        members: Members::new(codec, pieces, port.graph.max_chunk_bytes),
        port,
        offset: 0,
        index: 0,
    };
    while stream.step(piece_bytes) {}
    port.input().stop(); // or those before would wait for room for ever
}

impl Stream<'_> {
    /// Passes one piece on. Returns false after the last, or if the graph was stopped.
    fn step(&mut self, piece_bytes: usize) -> bool {
        let started_ns = self.port.graph.now_ns();
        self.members.input().waited_ns = 0;
        let (piece, end) = match self.port.graph.pool.take(piece_bytes) {
            Ok(buffer) => self.fill(buffer, piece_bytes),
            Err(error) => return self.fail(error.into()),
        };
        if !piece.is_empty() && !self.pass_on(piece, started_ns) {
            return false;
        }
        match end {
            None => true,
            Some(Ok(())) => self.drain(),
            Some(Err(error)) => self.fail(Cause::of_decoding(error)),
        }
    }

    /// Decompresses as much as is available, waiting only for the first bytes. Returns how the stream ended, if it did.
    fn fill(&mut self, mut piece: Buffer, piece_bytes: usize) -> (Buffer, Option<io::Result<()>>) {
        let mut bytes = 0;
        let mut end = None;
        while bytes < piece_bytes && end.is_none() && (bytes == 0 || !self.members.input().would_wait()) {
            match self.members.read(&mut piece.space_mut()[bytes..piece_bytes]) {
                Ok(0) => end = Some(Ok(())),
                Ok(more) => bytes += more,
                Err(error) => end = Some(Err(error)),
            }
        }
        piece.set_len(bytes);
        (piece, end)
    }

    fn pass_on(&mut self, piece: Buffer, started_ns: u64) -> bool {
        let input = self.members.input();
        let waited_ns = input.waited_ns;
        let source = input.piece.as_ref().expect("what comes out was in a piece");
        let ended_ns = self.port.graph.now_ns();
        let bytes = piece.len();
        let mut chunk = source.clone().with_bytes(piece);
        (chunk.offset, chunk.index) = (self.offset, self.index);
        chunk.times.push((started_ns, ended_ns));
        self.port.meter.worked((ended_ns - started_ns).saturating_sub(waited_ns), bytes);
        self.offset += bytes as u64;
        let goes_on = self.put(Ok(chunk));
        self.port.meter.blocked(waited_ns, self.port.graph.now_ns() - ended_ns);
        goes_on
    }

    fn put(&mut self, item: Item) -> bool {
        self.index += 1;
        self.port.put(self.index - 1, Some(item))
    }

    /// Discards what follows the end of the stream, so that its writer is not interrupted.
    fn drain(&mut self) -> bool {
        while let Taken::Item(..) = self.port.input().take(None) {}
        false
    }

    fn fail(&mut self, cause: Cause) -> bool {
        let byte = self.members.taken_bytes();
        let input = self.members.input();
        let fault = input.fault.take();
        if input.is_stopped {
            return false;
        }
        let own = || {
            self.port.meter.failed();
            let name = input.piece.as_ref().map_or(&self.port.graph.label, |piece| &piece.name);
            Arc::new(self.port.fault(name, byte, self.index, cause))
        };
        let fault = fault.unwrap_or_else(own);
        self.put(Err(fault));
        false
    }
}

//! The table of streams: which one a descriptor leads to.

use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use super::Stream;
use crate::runtime::fork::PerProcess;
use crate::sync::lock;
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::{Borrowed, SysError};
use crate::writer::job::Destination;

#[derive(Default)]
struct Streams {
    /// All that are in use by writers, workers or calls by descriptor and have not failed.
    working: HashMap<StreamId, Weak<Stream>>,
    /// Those with a failure that neither a ticket nor `sync` has reported.
    failed: HashMap<StreamId, Failed>,
}

struct Failed {
    stream: Arc<Stream>,
    /// An eventfd, as long as nobody else may have its identity.
    _held: Option<Arc<Destination>>,
}

/// Its lock comes before those of queues.
static STREAMS: PerProcess<Mutex<Streams>> = PerProcess::new(Mutex::default);

impl Stream {
    /// Returns the stream that the descriptor leads to: the same for all descriptors of one pipe. After a failure, it is a
    /// new one, which may find room or another reader.
    pub(crate) fn of(fd: Borrowed<'_>) -> Result<Arc<Self>, SysError> {
        let (id, kind) = fd::identify_destination(fd)?;
        Ok(Self::working(&mut lock(STREAMS.get()), id, kind))
    }

    /// As [`of`](Self::of), for a write by descriptor, to which a failed stream belongs until a ticket or `sync` has reported
    /// it. Whether it is the stream's first.
    pub(crate) fn by_descriptor(fd: Borrowed<'_>) -> Result<(Arc<Self>, bool), SysError> {
        let (id, kind) = fd::identify_destination(fd)?;
        let mut streams = lock(STREAMS.get());
        if let Some(failed) = streams.failed.get(&id) {
            return Ok((Arc::clone(&failed.stream), false));
        }
        let stream = Self::working(&mut streams, id, kind);
        // While the table is locked: see `part`.
        let mut last = lock(&stream.by_descriptor);
        let is_first = last.is_none();
        last.get_or_insert_default();
        drop(last);
        Ok((stream, is_first))
    }

    fn working(streams: &mut Streams, id: StreamId, kind: Kind) -> Arc<Self> {
        if let Some(stream) = streams.working.get(&id).and_then(Weak::upgrade) {
            return stream;
        }
        let stream = Arc::new_cyclic(|own| Self::new(own, id, kind));
        streams.working.insert(id, Arc::downgrade(&stream));
        stream
    }

    /// Fails the queue by `fail`, which may find that it must not, and takes the stream out of the table.
    ///
    /// The table is locked meanwhile: after an error is visible, the next write to this destination opens a new stream. So `fail`
    /// ends no ticket and wakes nobody, because wakers and callbacks may use any stream.
    pub(super) fn part<R>(self: &Arc<Self>, fail: impl FnOnce() -> R) -> R {
        let mut streams = lock(STREAMS.get());
        let outcome = fail();
        let parts = self.queue.failure().is_some() && streams.remove_working(self);
        if parts && let Some(last) = &*lock(&self.by_descriptor) {
            // Do not replace an existing entry: dropping it would lock the table again.
            streams.failed.entry(self.id).or_insert_with(|| Failed {
                stream: Arc::clone(self),
                _held: if self.id.is_of_eventfd() { last.upgrade() } else { None },
            });
        }
        outcome
    }

    /// Called when `sync` or a ticket has reported its failure.
    pub(crate) fn forget_failure(self: &Arc<Self>) {
        self.unreported.note_reported();
        let mut streams = lock(STREAMS.get());
        let is_its_own = streams.failed.get(&self.id).is_some_and(|failed| Arc::ptr_eq(&failed.stream, self));
        let forgotten = is_its_own.then(|| streams.failed.remove(&self.id));
        drop(streams);
        drop(forgotten); // outside of the table's lock
    }

    /// All that writes by descriptor go to or have failed in.
    pub(crate) fn all_by_descriptor() -> Vec<Arc<Self>> {
        let streams = lock(STREAMS.get());
        let mut all = streams.all_working();
        let failed: Vec<_> = streams.failed.values().map(|failed| Arc::clone(&failed.stream)).collect();
        drop(streams); // before any of `all`, whose last reference may be here
        all.retain(|stream| lock(&stream.by_descriptor).is_some());
        all.extend(failed);
        all
    }

    /// The descriptor of a write by descriptor: that of the last one while it is in flight, or a new one.
    pub(crate) fn share(
        &self,
        open: impl FnOnce() -> Result<Arc<Destination>, SysError>,
    ) -> Result<Arc<Destination>, SysError> {
        // Any descriptor of a pipe or socket serves. Those of a file may have different positions.
        let is_shareable = !matches!(self.kind, Kind::File | Kind::Other);
        let mut shared = lock(&self.by_descriptor);
        if is_shareable && let Some(present) = shared.as_ref().and_then(Weak::upgrade) {
            return Ok(present);
        }
        let own = open()?;
        *shared = Some(Arc::downgrade(&own));
        Ok(own)
    }

    /// All streams in use that have not failed.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        lock(STREAMS.get()).all_working()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(STREAMS.get()).remove_working(self);
    }
}

impl Streams {
    fn all_working(&self) -> Vec<Arc<Stream>> {
        self.working.values().filter_map(Weak::upgrade).collect()
    }

    /// Another stream may have taken its place already. Whether it was there.
    fn remove_working(&mut self, stream: &Stream) -> bool {
        let is_there = self.working.get(&stream.id).is_some_and(|other| ptr::eq(other.as_ptr(), stream));
        if is_there {
            self.working.remove(&stream.id);
        }
        is_there
    }
}

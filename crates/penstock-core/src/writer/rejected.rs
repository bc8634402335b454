//! A write that was refused.

use std::any::Any;
use std::fmt;
use std::io;

use crate::error::Error;
use crate::memory::region::Region;

/// A write that was refused: the region, and why.
///
/// Converts into its [`Error`] or an [`io::Error`], so that `?` drops the region.
pub struct Rejected<R = Box<dyn Region>> {
    /// The region, as it was passed in.
    pub region: R,
    /// Why it was refused. After [`Error::Stalled`] the same write may be tried again.
    pub error: Error,
}

impl<R: Region> Rejected<R> {
    /// The refusal of a region that was queued as a box of this type.
    pub(crate) fn unboxed(rejected: Rejected) -> Self {
        let region: Box<dyn Any> = rejected.region;
        let region = region.downcast().expect("the queue gives back the box that was pushed");
        Self { region: *region, error: rejected.error }
    }
}

impl<R> fmt::Debug for Rejected<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<R> fmt::Display for Rejected<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the write was refused: {}", self.error)
    }
}

impl<R> std::error::Error for Rejected<R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<R> From<Rejected<R>> for Error {
    fn from(rejected: Rejected<R>) -> Self {
        rejected.error
    }
}

impl<R> From<Rejected<R>> for io::Error {
    fn from(rejected: Rejected<R>) -> Self {
        rejected.error.into()
    }
}

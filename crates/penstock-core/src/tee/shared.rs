//! What the thread of a tee shares with its owners.

use super::branch::Branch;
use super::outlets::{Outlets, TeeOutlet};
use crate::runtime::task::Live;
use crate::sync::mailbox::Mailbox;
use crate::sys::fd::StreamId;

/// What the thread of a tee shares with its owners.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) source: StreamId,
    pub(super) orders: Mailbox<Order>,
    pub(super) progress: Live<Progress>,
    pub(super) outlets: Live<Outlets>,
}

#[derive(Debug)]
pub(super) enum Order {
    Add(Box<Branch>),
    Remove(TeeOutlet),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) taken: u64,
    pub(super) lost: u64,
    pub(super) source_ended: bool,
}

//! Bytes from one descriptor to another, by the best method that the pair allows.
//!
//! - [`splice`]: pages change hands inside the kernel, from or to a pipe, or through an inner pipe where neither end is one.
//! - [`file`](mod@file): the kernel copies a file, to a file or to a socket.
//! - [`holes`]: what a file copy leaves out.
//! - [`read_write`]: read(2) and write(2), where the kernel refuses all else.
//!
//! `method` chooses one of them and falls back to the next; `transfer` takes its steps, and waits. `handle` is a relay on its caller's thread, `background` one on its own.

pub(crate) mod background;
pub(crate) mod ends;
pub(crate) mod file;
pub(crate) mod handle;
pub(crate) mod holes;
pub(crate) mod method;
pub(crate) mod read_write;
pub(crate) mod report;
pub(crate) mod splice;
pub(crate) mod transfer;

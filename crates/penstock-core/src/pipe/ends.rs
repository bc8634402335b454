//! A kernel pipe of a chosen size.

use std::io::{PipeReader, PipeWriter};

use crate::error::Error;
use crate::pipe::budget;
use crate::sys::{AsHandle, fd, pipe};

/// Makes a pipe of about `capacity_bytes`, as far as the system grants it. Its ends are `std`'s: they read and write, and can be
/// passed to child processes.
///
/// ```
/// use std::io::{Read, Write};
/// let (mut reader, mut writer) = penstock_core::make_pipe(Some(1 << 20))?;
/// writer.write_all(b"frame")?;
/// drop(writer);
/// let mut got = String::new();
/// reader.read_to_string(&mut got)?;
/// assert_eq!(got, "frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The process or the system has no descriptors left.
pub fn make_pipe(capacity_bytes: Option<usize>) -> Result<(PipeReader, PipeWriter), Error> {
    let [reader, writer] = pipe::make().map_err(Error::of_system)?;
    if let Some(bytes) = capacity_bytes {
        let (id, _) = fd::identify(writer.as_handle()).map_err(Error::of_system)?;
        budget::set(writer.as_handle(), id, bytes);
    }
    Ok((reader.into(), writer.into()))
}

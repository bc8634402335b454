//! Copies a file to standard output, as `cat` does; with a pipe there, no byte passes through this program.
//!
//! ```text
//! cargo run --release --example copy_file_to_pipe -- FILE | wc -c
//! ```

use std::error::Error;
use std::fs::File;

use penstock_core::{RelayOptions, relay};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: copy_file_to_pipe FILE")?;
    let relayed = relay(File::open(path)?, std::io::stdout(), &RelayOptions::default())?;
    eprintln!("{} bytes by {}: {}", relayed.bytes, relayed.method.name(), relayed.reason);
    Ok(())
}

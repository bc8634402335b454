//! Copies standard input to many files, FIFOs or devices, as `tee` does, and says what became of each. Who takes nothing for two
//! seconds is given up, and the others go on.
//!
//! ```text
//! producer | cargo run --release --example tee_to_many -- copy.raw /dev/null
//! ```

use std::error::Error;
use std::fs::OpenOptions;
use std::time::Duration;

use penstock_core::{Tee, TeeEnd, TeePolicy};

fn main() -> Result<(), Box<dyn Error>> {
    let tee = Tee::new(std::io::stdin(), None)?;
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    for path in &paths {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        tee.add(file, TeePolicy::Evict { after: Duration::from_secs(2) })?;
    }
    let report = tee.wait()?;
    for (path, output) in paths.iter().zip(report.outputs) {
        let output = output.report();
        let end = output.end.map_or("running", TeeEnd::name);
        eprintln!("{}: {} bytes by {}, {end}", path.display(), output.bytes_delivered, output.method());
    }
    Ok(())
}

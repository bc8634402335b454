//! Streams compressed assets through two decompressors and a checksum, and says for each what it was, and in the end who was slow.
//!
//! ```text
//! cargo run --release --example streaming_pipeline -- textures/*.zst
//! ```

use std::error::Error;
use std::path::PathBuf;

use penstock_core::ThreadPolicy;
use penstock_pipeline::{Checksum, ChecksumKind, Codec, OnError, Options, Pipeline, Sink, Source, Stage};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let later = ThreadPolicy::default().nice(5);
    let stages = vec![
        Stage::decompress(Codec::Auto).workers(2),
        // Behind the decompressors, and with less to do: others may run before it.
        Stage::checksum(ChecksumKind::Crc32).policy(later),
    ];
    let options = Options::default().on_error(OnError::Skip);
    let pipeline = Pipeline::start(Source::files(paths), stages, Sink::iterate(), &options)?;
    while let Some(chunk) = pipeline.next(None)? {
        let Some(Checksum::Crc32(sum)) = chunk.checksum() else {
            unreachable!("the last stage finds it out")
        };
        println!("{sum:08x} {:>10} {}", chunk.len(), chunk.name().display());
    }
    for error in pipeline.skipped() {
        eprintln!("{error}");
    }
    match pipeline.stats()?.bottleneck() {
        Some(part) => {
            eprintln!("the slowest part is {}: busy {:.0} % of its time", part.name, 100.0 * part.busy())
        }
        None => eprintln!("no part is clearly the slowest"),
    }
    Ok(())
}

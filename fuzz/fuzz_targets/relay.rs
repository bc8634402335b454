//! A relay against a loop of read(2) and write(2), between any two kinds of descriptors.

#![no_main]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use penstock_core::{RelayMode, RelayOptions, relay};

#[derive(Arbitrary, Debug, Clone, Copy, PartialEq)]
enum Kind {
    Pipe,
    Socket,
    File,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    src: Kind,
    dst: Kind,
    count: Option<u32>,
    offset: Option<u16>,
    /// Where a file stands at first.
    position: u8,
    reads_and_writes: bool,
    /// Sizes that the source is written in.
    pieces: [u16; 3],
    repeats: u8,
    bytes: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let data = input.bytes.repeat(usize::from(input.repeats) + 1);
    let mode = if input.reads_and_writes { RelayMode::ReadWrite } else { RelayMode::Auto };
    let mut options = RelayOptions::default().timeout(Duration::from_secs(20)).mode(mode);
    options.count = input.count.map(u64::from);
    options.offset = input.offset.filter(|_| input.src == Kind::File).map(u64::from);
    let position = if input.src == Kind::File { data.len().min(usize::from(input.position)) } else { 0 };
    let start = options.offset.map_or(position, |offset| data.len().min(offset as usize));
    let end = input.count.map_or(data.len(), |count| data.len().min(start + count as usize));
    let expected = &data[start..end];

    let (src, feeding) = source(&input, &data, position);
    let (dst, mut taken) = destination(input.dst);
    let draining = match taken {
        Taken::Thread(thread) => Ok(thread),
        Taken::File(ref mut file) => Err(file),
    };
    let relayed = relay(&src, &dst, &options).expect("nothing fails");
    assert_eq!(relayed.bytes, expected.len() as u64);
    drop(dst);
    let got = match draining {
        Ok(thread) => thread.join().unwrap(),
        Err(file) => {
            let mut got = Vec::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_end(&mut got).unwrap();
            got
        }
    };
    assert!(got == expected, "{} bytes came, and {} were to come", got.len(), expected.len());
    check_rest(File::from(src), &input, &data, if options.offset.is_some() { position } else { end });
    if let Some(feeding) = feeding {
        feeding.join().unwrap();
    }
});

/// What was not asked for is still in the source.
fn check_rest(mut src: File, input: &Input<'_>, data: &[u8], from: usize) {
    let mut rest = Vec::new();
    src.read_to_end(&mut rest).unwrap();
    assert!(
        rest == data[from..],
        "{:?} has {} bytes left, and not {}",
        input.src,
        rest.len(),
        data.len() - from
    );
}

fn source(input: &Input<'_>, data: &[u8], position: usize) -> (OwnedFd, Option<thread::JoinHandle<()>>) {
    let (src, mut filled): (OwnedFd, Box<dyn Write + Send>) = match input.src {
        Kind::File => {
            let mut file = unnamed_file();
            file.write_all(data).unwrap();
            file.seek(SeekFrom::Start(position as u64)).unwrap();
            return (file.into(), None);
        }
        Kind::Pipe => {
            let (reader, writer) = pipe().unwrap();
            (reader.into(), Box::new(writer))
        }
        Kind::Socket => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (ours.into(), Box::new(theirs))
        }
    };
    let (data, pieces) = (data.to_vec(), input.pieces);
    let feed = thread::spawn(move || {
        let (mut rest, mut sizes) = (&*data, pieces.iter().cycle());
        while !rest.is_empty() {
            let size = usize::from(*sizes.next().unwrap()).clamp(rest.len().div_ceil(50), rest.len());
            let (piece, more) = rest.split_at(size);
            filled.write_all(piece).unwrap();
            rest = more;
        }
    });
    (src, Some(feed))
}

enum Taken {
    Thread(thread::JoinHandle<Vec<u8>>),
    File(File),
}

fn destination(kind: Kind) -> (OwnedFd, Taken) {
    let (mut reader, dst): (Box<dyn Read + Send>, OwnedFd) = match kind {
        Kind::File => {
            let file = unnamed_file();
            let other = file.as_fd().try_clone_to_owned().unwrap();
            return (other, Taken::File(file));
        }
        Kind::Pipe => {
            let (reader, writer) = pipe().unwrap();
            (Box::new(reader), writer.into())
        }
        Kind::Socket => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (Box::new(theirs), ours.into())
        }
    };
    let drain = thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        got
    });
    (dst, Taken::Thread(drain))
}

fn unnamed_file() -> File {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("penstock-fuzz-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

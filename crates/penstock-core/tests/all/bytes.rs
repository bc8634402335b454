//! Writes into pipes and files, on each system.

use std::fs::File;
use std::io::{PipeReader, Read, pipe};
use std::thread;
use std::time::{Duration, Instant};

use penstock_core::{Error, Mode, Ticket, Writer, WriterOptions, conformance, process};

use crate::eventually;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn read_all(mut reader: PipeReader) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        got
    })
}

fn queue(writer: &Writer, bytes: &[u8]) -> Ticket {
    writer.submit(bytes.to_vec(), None).unwrap()
}

#[test]
fn writes_of_all_sizes_arrive_whole_and_in_order_and_the_reader_gets_its_end_at_the_close() {
    let (reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &WriterOptions::default()).unwrap();
    drop(end);
    let (got, bytes) = (read_all(reader), pattern(3_000_000));
    let mut rest = &bytes[..];
    for size in [0, 1, 100, 5000, 70_000, 300_000, 1_000_001].into_iter().cycle() {
        let (piece, after) = rest.split_at(rest.len().min(size));
        writer.write(piece, None).unwrap();
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    // What waits in the pipe has not been delivered.
    eventually(|| writer.stats().delivered_bytes == bytes.len() as u64);
    writer.close(None).unwrap();
    assert!(got.join().unwrap() == bytes);
}

#[test]
fn a_caller_does_not_wait_for_a_reader_that_reads_nothing() {
    let (reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &WriterOptions::default()).unwrap();
    let start = Instant::now();
    let ticket = queue(&writer, &pattern(4_000_000));
    assert!(start.elapsed() < Duration::from_secs(1) && !ticket.has_ended());
    assert!(matches!(writer.flush(Some(Duration::from_millis(50))), Err(Error::Stalled { .. })));
    drop(end);
    let got = read_all(reader);
    writer.close(None).unwrap();
    assert_eq!(got.join().unwrap().len(), 4_000_000);
}

#[test]
fn an_abort_ends_the_write_that_lasts_and_those_that_wait() {
    let (_reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &WriterOptions::default()).unwrap();
    let tickets = [(); 3].map(|()| queue(&writer, &pattern(4_000_000)));
    thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    writer.abort();
    for ticket in &tickets {
        assert!(matches!(ticket.wait(), Err(Error::Aborted { .. })));
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_abort_at_any_moment_cuts_no_write_of_another_writer() {
    for round in 0..60_u64 {
        let (reader, end) = pipe().unwrap();
        let [first, second] = [(); 2].map(|()| Writer::new(&end, &WriterOptions::default()).unwrap());
        drop(end);
        let bytes = pattern(300_000);
        queue(&first, &[0xFF; 40_000]);
        let kept = queue(&second, &bytes);
        queue(&first, &[0xFF; 40_000]);
        let got = read_all(reader);
        thread::sleep(Duration::from_micros(round * 7919 % 500));
        first.abort();
        assert_eq!(kept.wait(), Ok(()));
        second.close(None).unwrap();
        let got = got.join().unwrap();
        let begun = got.windows(1000).position(|window| window == &bytes[..1000]).unwrap();
        assert!(got[begun..][..bytes.len()] == bytes, "round {round}");
    }
}

#[test]
fn a_reader_that_goes_away_is_an_error_with_what_was_lost() {
    let (reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &WriterOptions::default()).unwrap();
    let ticket = queue(&writer, &pattern(4_000_000));
    drop((reader, end));
    let failure = ticket.wait().unwrap_err();
    let Error::Broken { bytes_delivered, bytes_lost, .. } = failure else { panic!("{failure:?}") };
    assert_eq!(bytes_delivered + bytes_lost, 4_000_000);
    assert!(bytes_lost > 0);
}

#[test]
fn a_new_pipe_with_the_number_of_a_closed_one_is_another_stream() {
    let (kept, first) = pipe().unwrap();
    let writer = Writer::new(&first, &WriterOptions::default()).unwrap();
    let lost = queue(&writer, &pattern(4_000_000));
    drop(first);
    let pipes = [(); 4].map(|()| pipe().unwrap());
    let others =
        pipes.map(|(reader, end)| (read_all(reader), Writer::new(&end, &WriterOptions::default()).unwrap()));
    drop(kept);
    assert!(matches!(lost.wait(), Err(Error::Broken { .. })));
    for (got, writer) in others {
        writer.write(&pattern(100_000), None).unwrap();
        writer.close(None).unwrap();
        assert!(got.join().unwrap() == pattern(100_000));
    }
}

#[test]
fn two_writers_of_one_pipe_are_one_stream() {
    let (reader, end) = pipe().unwrap();
    let copy = end.try_clone().unwrap();
    let writers = [&end, &copy].map(|end| Writer::new(end, &WriterOptions::default()).unwrap());
    drop((end, copy));
    let got = read_all(reader);
    for (at, piece) in pattern(900_000).chunks(30_000).enumerate() {
        writers[at % 2].write(piece, None).unwrap();
    }
    writers.iter().for_each(|writer| writer.close(None).unwrap());
    assert!(got.join().unwrap() == pattern(900_000));
}

#[test]
fn a_file_is_written_from_its_position() {
    let path = std::env::temp_dir().join(format!("penstock-bytes-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let writer = Writer::new(&file, &WriterOptions::default()).unwrap();
    let pieces = pattern(20_000_000);
    pieces.chunks(7_000_000).for_each(|piece| drop(queue(&writer, piece)));
    writer.close(None).unwrap();
    assert!(std::fs::read(&path).unwrap() == pieces);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_handle_that_is_open_for_reading_only_is_refused_at_the_call() {
    let (reader, _end) = pipe().unwrap();
    assert!(matches!(Writer::new(&reader, &WriterOptions::default()), Err(Error::Io { .. })));
}

#[test]
fn memory_is_written_by_each_mode_and_released_once() {
    conformance::check_region(|| pattern(500_000), &pattern(500_000));
}

#[test]
fn writes_by_descriptor_arrive_and_sync_waits_for_them() {
    let (reader, end) = pipe().unwrap();
    let got = read_all(reader);
    for piece in pattern(2_000_000).chunks(123_456) {
        process::pipe(piece.to_vec(), &end, Mode::Auto, None).unwrap();
    }
    drop(end);
    process::sync(None).unwrap();
    assert!(got.join().unwrap() == pattern(2_000_000));
}

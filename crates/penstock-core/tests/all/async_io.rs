//! Writers and readers in a runtime of one thread, which none of them blocks.

use std::io::{self, ErrorKind, PipeReader, pipe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Builder;

use crate::common::pattern;
use penstock_core::{
    AsyncByteReader, AsyncByteWriter, Error, Mode, Reader, ReaderOptions, Writer, WriterOptions,
};

fn run<F: Future>(work: F) -> F::Output {
    Builder::new_current_thread().build().unwrap().block_on(work)
}

/// A pipe with a writer whose queue is soon full.
fn narrow(mode: Mode) -> (PipeReader, Writer) {
    let (reader, end) = pipe().unwrap();
    let options = WriterOptions::default().mode(mode).queue_items(1).capacity_bytes(4096);
    (reader, Writer::new(&end, &options).unwrap())
}

fn of_frames(source: &PipeReader, frame_bytes: usize) -> Reader {
    Reader::new(source, &ReaderOptions::new(frame_bytes).depth(1)).unwrap()
}

#[test]
fn both_ends_of_a_pipe_are_served_by_one_thread() {
    for mode in [Mode::Write, Mode::ZeroCopy] {
        let (source, writer) = narrow(mode);
        let data = Arc::new(pattern(5_000_003, 1));
        let written = Arc::clone(&data);
        run(async {
            let mut input = AsyncByteReader::new(of_frames(&source, 1000));
            let writing = tokio::spawn(async move {
                let mut output = AsyncByteWriter::new(writer);
                output.write_all(&written).await?;
                output.flush().await?;
                output.shutdown().await
            });
            let mut got = Vec::new();
            let error = input.read_to_end(&mut got).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "3 bytes are over, and the shutdown closed");
            assert!(got == *data, "{mode:?}");
            writing.await.unwrap().unwrap();
        });
    }
}

#[test]
fn lines_are_read_from_frames() {
    let (source, writer) = narrow(Mode::Write);
    run(async {
        let mut lines = AsyncByteReader::new(of_frames(&source, 6)).lines();
        let mut output = AsyncByteWriter::new(writer);
        output.write_all(b"one\ntwo\nfour").await.unwrap();
        output.shutdown().await.unwrap();
        for expected in ["one", "two", "four"] {
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some(expected));
        }
        assert_eq!(lines.next_line().await.unwrap(), None);
    });
}

#[test]
fn a_write_is_pending_while_the_queue_is_full() {
    let (mut source, writer) = narrow(Mode::Write);
    let mut output = AsyncByteWriter::new(&writer);
    let mut poll =
        |bytes: &[u8]| Pin::new(&mut output).poll_write(&mut Context::from_waker(Waker::noop()), bytes);
    assert!(matches!(poll(&[1; 20_000]), Poll::Ready(Ok(20_000))));
    assert!(poll(&[2]).is_pending(), "a large copy is joined by none");
    io::Read::read_exact(&mut source, &mut [0; 20_000]).unwrap();
    writer.flush(None).unwrap();
    assert!(matches!(poll(&[2]), Poll::Ready(Ok(1))));
    io::Read::read_exact(&mut source, &mut [0; 1]).unwrap();
    writer.close(None).unwrap();
}

#[test]
fn a_shutdown_that_is_aborted_meanwhile_is_no_success() {
    let (_source, writer) = narrow(Mode::Write);
    let mut output = AsyncByteWriter::new(&writer);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut output).poll_write(context, &[1; 10_000]), Poll::Ready(Ok(10_000))));
    assert!(Pin::new(&mut output).poll_shutdown(context).is_pending());
    writer.abort();
    let Poll::Ready(Err(error)) = Pin::new(&mut output).poll_shutdown(context) else { panic!("it succeeds") };
    assert_eq!(error.downcast::<Error>().unwrap(), Error::Closed);
    assert!(matches!(Pin::new(&mut output).poll_shutdown(context), Poll::Ready(Ok(()))));
}

#[test]
fn a_failure_comes_with_its_counts() {
    let (mut source, writer) = narrow(Mode::Write);
    run(async {
        let mut output = AsyncByteWriter::new(writer);
        output.write_all(&[1; 10_000]).await.unwrap();
        io::Read::read_exact(&mut source, &mut [0; 1000]).unwrap();
        drop(source);
        let error: io::Error = output.flush().await.unwrap_err();
        let failure = Error::Broken { os_error: libc::EPIPE, bytes_delivered: 1000, bytes_lost: 9000 };
        assert_eq!(error.downcast::<Error>().unwrap(), failure);
        output.get_ref().abort();
        let error = output.write_all(&[2]).await.unwrap_err();
        assert_eq!(error.downcast::<Error>().unwrap(), Error::Closed);
    });
}

#[cfg(feature = "futures")]
#[test]
fn frames_are_a_stream_that_ends_after_its_failure() {
    use futures_core::Stream;
    use penstock_core::FrameStream;

    let (source, writer) = narrow(Mode::Write);
    run(async {
        let mut frames = FrameStream::new(of_frames(&source, 1000));
        let mut next =
            async || std::future::poll_fn(|context| Pin::new(&mut frames).poll_next(context)).await;
        let data = pattern(50_001, 2);
        let written = data.clone();
        let writing = tokio::spawn(async move {
            let mut output = AsyncByteWriter::new(writer);
            output.write_all(&written).await?;
            output.shutdown().await
        });
        for (index, expected) in (0..).zip(data.chunks_exact(1000)) {
            let frame = next().await.unwrap().unwrap();
            assert_eq!((frame.index(), &*frame), (index, expected));
        }
        writing.await.unwrap().unwrap();
        let torn = Error::Truncated { frames: 50, frame_bytes: 1000, bytes_over: 1 };
        assert_eq!(next().await.map(Result::unwrap_err), Some(torn));
        assert!(next().await.is_none());
    });
}

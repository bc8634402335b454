//! A file into a pipe, the pipe into a socket, the socket into a FIFO that somebody opens meanwhile, and the FIFO into a file:
//! what the Go library `pipes` is for.
//!
//! ```text
//! cargo run --release --example pipes_and_fifos -- FROM TO
//! ```

use std::error::Error;
use std::fs::File;
use std::net::{TcpListener, TcpStream};

use penstock_core::{Access, Fifo, make_pipe, relay, relay_in_background};

fn main() -> Result<(), Box<dyn Error>> {
    let [from, to] = [1, 2].map(|n| std::env::args_os().nth(n).expect("usage: pipes_and_fifos FROM TO"));
    let all = &Default::default();
    let (reader, writer) = make_pipe(Some(1 << 20))?;
    let into_pipe = relay_in_background(File::open(from)?, writer, all, None)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let into_socket = relay_in_background(reader, client, all, None)?;
    let path = std::env::temp_dir().join(format!("pipes-and-fifos-{}", std::process::id()));
    Fifo::create(&path, 0o600)?;
    let fifo = Fifo::at(&path)?;
    let opening = fifo.open_in_background(Access::Read)?;
    let into_fifo = relay_in_background(listener.accept()?.0, fifo.writer(None)?, all, None)?;
    let last = relay(opening.take()?, File::create(to)?, all)?;
    std::fs::remove_file(path)?;
    for relayed in [into_pipe.wait()?, into_socket.wait()?, into_fifo.wait()?, last] {
        println!("{} bytes by {}", relayed.bytes, relayed.method.name());
    }
    Ok(())
}

//! Passes the program's output to the user.
//!
//! Our kernel sends stdout and stderr in pieces through one channel, so that their order is kept. The first
//! program of another kernel uses one channel for each stream, and so does a panic of our kernel.

use std::path::Path;

use anyhow::Result;

use super::channel::Channel;
use super::pieces::{Pieces, Stream};
use super::tail::Tail;
use crate::figure::{FigureFinder, Figures};
use crate::show::Sink;

/// Where the program's two streams go.
#[derive(Clone, Copy)]
pub struct Sinks {
    pub stdout: Sink,
    pub stderr: Sink,
}

/// The channels.
pub struct Output {
    pieces: Channel<(Pieces, Seen)>,
    stdout: Channel<Seen>,
    stderr: Channel<Seen>,
}

/// What is kept of the output that was passed on.
#[derive(Default)]
pub struct Seen {
    figure: FigureFinder,
    tail: Tail,
}

impl Seen {
    fn pass(&mut self, stream: Stream, piece: &[u8], sinks: Sinks) {
        let sink = match stream {
            Stream::Output => {
                self.figure.feed(piece);
                sinks.stdout
            }
            Stream::Error => {
                self.tail.feed(piece);
                sinks.stderr
            }
        };
        // A closed sink is no reason to stop the program.
        let _ = sink.write(piece);
    }
}

impl Output {
    /// Listens in `folder`.
    pub fn open(folder: &Path, sinks: Sinks) -> Result<Self> {
        let whole = |stream| {
            move |seen: &mut Seen, bytes: &[u8]| {
                seen.pass(stream, bytes, sinks);
            }
        };
        let split = move |(pieces, seen): &mut (Pieces, Seen), bytes: &[u8]| {
            pieces.feed(bytes, |stream, piece| seen.pass(stream, piece, sinks));
        };
        let end = move |(pieces, seen): &mut (Pieces, Seen)| {
            pieces.finish(|stream, piece| seen.pass(stream, piece, sinks));
        };
        let (stdout, stderr) = (whole(Stream::Output), whole(Stream::Error));
        Ok(Self {
            pieces: Channel::open_to_end(folder.join("pieces"), Default::default(), split, end)?,
            stdout: Channel::open(folder.join("out"), Seen::default(), stdout)?,
            stderr: Channel::open(folder.join("err"), Seen::default(), stderr)?,
        })
    }

    /// Where QEMU has to connect for the two streams and for the pieces of both.
    pub fn paths(&self) -> (&Path, &Path, &Path) {
        (self.stdout.path(), self.stderr.path(), self.pieces.path())
    }

    /// The program's figures, and the last lines on stderr; called when QEMU has ended.
    pub fn close(self) -> Result<(Figures, Tail)> {
        let (_, seen) = self.pieces.close()?;
        let (stdout, stderr) = (self.stdout.close()?, self.stderr.close()?);
        let (mut figures, plain) = (seen.figure.finish(), stdout.figure.finish());
        figures.figure = figures.figure.or(plain.figure);
        figures.steps.extend(plain.steps);
        let mut tail = seen.tail;
        tail.feed(stderr.tail.bytes());
        Ok((figures, tail))
    }
}

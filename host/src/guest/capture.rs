//! What a guest prints, caught in memory and bounded.
//!
//! The first and the last half of the bound are kept; what lies between is swallowed and reported
//! to the guest as written, because a full pipe would make its print a panic. The last half is kept
//! for the panic message that may follow a flood.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// How much a guest may hand over in one write, in bytes.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// A stream of the guest's, and the host's view of it. Clones share what was caught.
#[derive(Debug, Clone)]
pub(super) struct Capture {
    caught: Arc<Mutex<Caught>>,
}

#[derive(Debug)]
struct Caught {
    half_bytes: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    swallowed_bytes: u64,
}

impl Capture {
    /// Catches up to `limit_bytes`.
    pub(super) fn new(limit_bytes: usize) -> Capture {
        Capture {
            caught: Arc::new(Mutex::new(Caught {
                half_bytes: limit_bytes / 2,
                head: Vec::new(),
                tail: VecDeque::new(),
                swallowed_bytes: 0,
            })),
        }
    }

    /// Takes what was caught as text and starts anew.
    pub(super) fn take(&self) -> String {
        self.with(Caught::take)
    }

    fn with<R>(&self, act: impl FnOnce(&mut Caught) -> R) -> R {
        act(&mut self.caught.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Caught {
    fn write(&mut self, bytes: &[u8]) {
        let room = self.half_bytes - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(self.half_bytes);
        self.tail.drain(..over);
        self.swallowed_bytes += over as u64;
    }

    fn take(&mut self) -> String {
        let head = std::mem::take(&mut self.head);
        let tail = Vec::from(std::mem::take(&mut self.tail));
        match std::mem::take(&mut self.swallowed_bytes) {
            0 => String::from_utf8_lossy(&[head, tail].concat()).into_owned(),
            swallowed_bytes => format!(
                "{}\n[{swallowed_bytes} bytes more, over the limit `log`]\n{}",
                String::from_utf8_lossy(&head),
                String::from_utf8_lossy(&tail)
            ),
        }
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only WASI 0.3 asks for this one, and this host does not offer it.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.with(|caught| caught.write(&bytes));
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(limit_bytes: usize, writes: &[&str], expected: &str) {
        let capture = Capture::new(limit_bytes);
        for write in writes {
            let written =
                OutputStream::write(&mut capture.clone(), Bytes::from((*write).to_owned()));
            written.expect("a write is always taken");
        }
        assert_eq!(capture.take(), expected);
        assert_eq!(capture.take(), "");
    }

    #[test]
    fn what_fits_comes_back_whole() {
        check(10, &["abc", "def", "ghij"], "abcdefghij");
        check(10, &[], "");
    }

    #[test]
    fn beginning_and_end_survive_a_flood() {
        check(
            4,
            &["abcdefgh", "ij"],
            "ab\n[6 bytes more, over the limit `log`]\nij",
        );
    }
}

//! Both ends of a channel in one thread: the agent inside dpu-server.
//!
//! ```text
//! send ──copy─┐
//! give ──swap─┴► queue of at most queue_messages ──swap──► the receiver's buffer
//!          ▲                                         │
//!          └─────────── free buffers ◄───────────────┘
//! ```
//!
//! A message is copied when it is sent, and not at all when it is given; the receiver gets the buffer itself and leaves its old one for
//! the next message. At most `queue_messages` + 1 buffers a direction, each as large as the largest message it has held.
//! Single-threaded on purpose: no lock, and no descriptor, since one loop polls both ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use crate::{CommChannel, RecvError, SendError};

/// One end of an in-process channel.
#[derive(Debug)]
pub struct InProcess {
    outgoing: Rc<RefCell<Direction>>,
    incoming: Rc<RefCell<Direction>>,
    max_message_bytes: usize,
    queue_messages: usize,
}

/// One way through the channel. Each end holds both directions, so a count of one means that the other end is gone.
#[derive(Debug, Default)]
struct Direction {
    /// Sent, not yet received; at most `queue_messages`.
    queue: VecDeque<Vec<u8>>,
    /// Empty buffers. The one given back last is taken first: it is still in the cache.
    free: Vec<Vec<u8>>,
}

/// Makes both ends of a channel.
///
/// # Panics
/// When either argument is 0: such a channel carries nothing.
pub fn pair(max_message_bytes: usize, queue_messages: usize) -> (InProcess, InProcess) {
    assert!(max_message_bytes > 0, "a channel carries messages of at least one byte");
    assert!(queue_messages > 0, "a channel queues at least one message");
    let (there, back) = (Rc::default(), Rc::default());
    let end = |outgoing: &Rc<_>, incoming: &Rc<_>| InProcess {
        outgoing: Rc::clone(outgoing),
        incoming: Rc::clone(incoming),
        max_message_bytes,
        queue_messages,
    };
    (end(&there, &back), end(&back, &there))
}

impl InProcess {
    fn is_peer_gone(&self) -> bool {
        Rc::strong_count(&self.incoming) == 1
    }

    /// An empty buffer, if a message of so many bytes can be queued now.
    fn free_buffer(&self, bytes: usize) -> Result<Vec<u8>, SendError> {
        if bytes == 0 || bytes > self.max_message_bytes {
            return Err(SendError::Size { bytes, limit: self.max_message_bytes });
        }
        if self.is_peer_gone() {
            return Err(SendError::Lost);
        }
        let mut outgoing = self.outgoing.borrow_mut();
        if outgoing.queue.len() == self.queue_messages {
            return Err(SendError::WouldBlock);
        }
        Ok(outgoing.free.pop().unwrap_or_default())
    }
}

impl CommChannel for InProcess {
    fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let mut buffer = self.free_buffer(message.len())?;
        buffer.extend_from_slice(message);
        self.outgoing.borrow_mut().queue.push_back(buffer);
        Ok(())
    }

    fn give(&mut self, message: &mut Vec<u8>) -> Result<(), SendError> {
        let buffer = self.free_buffer(message.len())?;
        self.outgoing.borrow_mut().queue.push_back(mem::replace(message, buffer));
        Ok(())
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> Result<(), RecvError> {
        buffer.clear();
        let mut incoming = self.incoming.borrow_mut();
        match incoming.queue.pop_front() {
            Some(message) => {
                incoming.free.push(mem::replace(buffer, message));
                Ok(())
            }
            None if self.is_peer_gone() => Err(RecvError::Lost),
            None => Err(RecvError::Empty),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn buffers_go_round_once_the_queue_was_full() {
        const QUEUE: usize = 4;
        let (mut host, mut card) = pair(4080, QUEUE);
        let mut buffer = Vec::new();
        let mut seen = BTreeSet::new();
        for round in 0..1000 {
            for _ in 0..=round % QUEUE {
                host.send(&[7; 4080]).expect("room");
            }
            while card.recv(&mut buffer).is_ok() {
                seen.insert(buffer.as_ptr().addr());
            }
        }
        // The receiver's first buffer was never allocated: it becomes one when it is first filled.
        assert!(seen.len() <= QUEUE + 1, "{} buffers", seen.len());
    }

    #[test]
    fn a_given_message_arrives_in_its_own_buffer_and_is_kept_when_there_is_no_room() {
        let (mut host, mut card) = pair(16, 1);
        let mut message = b"one".to_vec();
        let address = message.as_ptr();
        assert_eq!(host.give(&mut message), Ok(()));
        assert!(message.is_empty());
        message.extend_from_slice(b"two");
        assert_eq!(host.give(&mut message), Err(SendError::WouldBlock));
        assert_eq!(message, b"two");
        let mut buffer = Vec::new();
        card.recv(&mut buffer).expect("a message");
        assert_eq!((buffer.as_slice(), buffer.as_ptr()), (b"one".as_slice(), address));
    }

    #[test]
    fn the_queue_takes_exactly_its_number_of_messages() {
        let (mut host, mut card) = pair(16, 3);
        let taken = (0..10).take_while(|_| host.send(b"x").is_ok()).count();
        assert_eq!((taken, host.send(b"x")), (3, Err(SendError::WouldBlock)));
        card.recv(&mut Vec::new()).expect("a message");
        assert_eq!(host.send(b"x"), Ok(()));
        assert_eq!(host.send(b"x"), Err(SendError::WouldBlock));
    }

    #[test]
    #[should_panic(expected = "at least one message")]
    fn a_queue_of_nothing_is_refused() {
        let _ = pair(16, 0);
    }
}

//! The messages of the data path cost no allocation once the buffer has its size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mqttshim_schema::{Message, SocketId, decode, encode};

/// The system's allocator, counting what each thread asks for.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // Fails only while the thread ends, when nobody counts any more.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: every method hands its arguments to `System` unchanged, which keeps GlobalAlloc's contract; counting touches a
// constant-initialised thread local and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: GlobalAlloc::alloc obliges our caller to pass a layout of nonzero size, which is what `System` asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: GlobalAlloc::dealloc obliges our caller to pass what `alloc` returned, which came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: GlobalAlloc::realloc obliges our caller to pass what `alloc` returned and a nonzero size.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

#[test]
fn stream_messages_are_encoded_and_decoded_without_allocating() {
    let (socket, payload) = (SocketId(4), vec![7; 3984]);
    let messages = [
        Message::Data { socket, stamp: 1, read: 2, bytes: &payload },
        Message::Data { socket, stamp: 3, read: 2, bytes: &payload[..1] },
        Message::Credit { socket, bytes: 65_536 },
        Message::Blocked { socket, stamp: 4 },
    ];
    let mut buffer = Vec::with_capacity(4080);
    for message in &messages {
        let asked = allocations(|| {
            for _ in 0..100 {
                encode(message, &mut buffer).expect("within the limits");
                assert_eq!(decode(&buffer).as_ref(), Ok(message));
            }
        });
        assert_eq!(asked, 0, "{message:.0?}");
    }
}

#[test]
fn refused_bytes_cost_no_allocation() {
    let asked = allocations(|| {
        let mut word = [0; 24];
        word[4] = 2;
        for bit in 64..192 {
            word[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&word);
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(Vec::<u8>::with_capacity(1))), 1);
}

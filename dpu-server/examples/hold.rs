//! Our own TCP/IP by itself, on memory shared with one peer: takes whoever connects, and drops what is sent.
//!
//! ```text
//! cargo run --release -p dpu-server --example hold -- /tmp/frames 198.19.0.1/16 &
//! mqttshim bench hold --tcp --connections 100000 --target hold=198.19.0.1:1883,pid=$!,port=mem:/tmp/frames
//! ```
//!
//! What a connection costs here, the stack costs, and nobody else.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result, bail};
use dpu_server::stack::smoltcp::Smoltcp;
use dpu_server::stack::{AcceptError, End, Event, Key, Received, Stack};
use mqttshim_port::mem::Mem;

const LISTENER: Key = Key(0);
const PORT: u16 = 1883;
const BACKLOG: i32 = 4096;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address] = arguments.as_slice() else {
        bail!("usage: hold PATH ADDRESS/LENGTH");
    };
    let own = address.parse().ok().with_context(|| format!("{address:?} is no ADDRESS/LENGTH"))?;
    let mut stack = Smoltcp::new(Mem::listen(Path::new(path))?, vec![own], None)?;
    let everywhere = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT).into();
    stack.bind(LISTENER, 0, everywhere, &[])?;
    stack.listen(LISTENER, BACKLOG, &[])?;
    let mut events = Vec::new();
    let mut free = Vec::new();
    let mut next = LISTENER.0 + 1;
    let mut dropped = vec![0; 64 * 1024];
    loop {
        stack.wait(None, &mut events)?;
        for event in events.drain(..) {
            let Event::Socket { key, readable: true, .. } = event else { continue };
            if key != LISTENER {
                if is_over(&mut stack, key, &mut dropped) {
                    stack.close(key, End::Close);
                    free.push(key);
                }
                continue;
            }
            loop {
                let key = free.pop().unwrap_or(Key(next));
                match stack.accept(LISTENER, key) {
                    Ok(_) => next = next.max(key.0 + 1),
                    Err(AcceptError::Empty) => {
                        free.push(key);
                        next = next.max(key.0 + 1);
                        break;
                    }
                    Err(error) => bail!("accept: {error:?}"),
                }
            }
        }
    }
}

/// Reads all there is; whether the client has ended.
fn is_over(stack: &mut impl Stack, key: Key, dropped: &mut [u8]) -> bool {
    loop {
        match stack.recv(key, dropped) {
            Received::Bytes(_) => {}
            Received::Empty => return false,
            Received::Fin | Received::Gone(_) => return true,
        }
    }
}

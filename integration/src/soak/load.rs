//! Clients that never rest: a publisher and a visitor in threads of the test, subscribers as processes of their own.
//!
//! Whatever fails is tried again; only what must not happen ends the run: a step that hangs.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::Process;
use crate::{Client, Folder, Login, Message, needs};

/// Subscribers that are processes.
const SUBSCRIBERS: usize = 3;
/// Pause between two messages of the publisher, and after a failure.
const PAUSE: Duration = Duration::from_millis(4);
/// How long any step of a client may take before it tries anew.
const STEP: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Shared {
    port: AtomicU64,
    is_over: AtomicBool,
    is_paused: AtomicBool,
    messages: AtomicU64,
    visits: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    subscribers: Vec<Process>,
    folder: std::path::PathBuf,
    port: u16,
}

impl Load {
    /// Starts it towards `port`.
    pub(super) fn start(folder: &Folder, port: u16) -> Load {
        let shared = Arc::new(Shared::default());
        shared.port.store(u64::from(port), Ordering::Relaxed);
        let spawn = |name: &str, work: fn(&Shared, u16) -> std::io::Result<()>| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(name.to_owned());
            let again_and_again = move || {
                while !shared.is_over.load(Ordering::Relaxed) {
                    // A connection that ended is what this is about: the next one is tried.
                    let _ = work(&shared, port);
                    std::thread::sleep(PAUSE);
                }
            };
            thread.spawn(again_and_again).expect("a thread")
        };
        let threads =
            vec![spawn("publisher", publish), spawn("reader", read), spawn("visitor", visit)];
        let folder = folder.path().to_owned();
        let mut load = Load { shared, threads, subscribers: Vec::new(), folder, port };
        load.refill();
        load
    }

    /// Starts subscribers in the place of those that are gone.
    pub(super) fn refill(&mut self) {
        self.subscribers.retain_mut(Process::is_running);
        while self.subscribers.len() < SUBSCRIBERS {
            let program = needs::find("mosquitto_sub").expect("the test asked for it");
            let mut command = Command::new(program);
            let port = self.port.to_string();
            command.args(["-h", "127.0.0.1", "-p", &port, "-t", "load/#", "-q", "1", "-N"]);
            self.subscribers.push(Process::start("subscriber", &self.folder, &mut command));
        }
    }

    /// One of the subscribers.
    pub(super) fn subscriber(&mut self) -> &mut Process {
        self.refill();
        self.subscribers.first_mut().expect("refilled above")
    }

    /// Holds everything, or lets it go on. Connections stay.
    pub(super) fn pause(&self, is_paused: bool) {
        self.shared.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Ends it. Returns the messages that arrived, and the visits.
    pub(super) fn stop(mut self) -> (u64, u64) {
        self.end();
        (self.shared.messages.load(Ordering::Relaxed), self.shared.visits.load(Ordering::Relaxed))
    }

    fn end(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let joined = thread.join();
            assert!(joined.is_ok() || std::thread::panicking(), "a client's thread failed");
        }
        self.subscribers.clear();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }
}

fn login(port: u16, name: &str) -> std::io::Result<Client> {
    let mut client = Client::begin(port, &Login::new(name))?;
    client.set_timeout(STEP);
    client.login()?;
    Ok(client)
}

/// QoS 0, which the card distributes, and QoS 1, which the broker does, in turn.
fn publish(shared: &Shared, port: u16) -> std::io::Result<()> {
    let mut client = login(port, "load-publisher")?;
    let mut number = 0_u32;
    while !shared.is_over() {
        std::thread::sleep(PAUSE);
        if shared.is_paused() {
            continue;
        }
        number += 1;
        let payload = vec![7; if number.is_multiple_of(50) { 20_000 } else { 64 }];
        let qos = u8::from(number.is_multiple_of(3));
        client.try_publish(&Message::new("load/all", payload).qos(qos))?;
    }
    Ok(())
}

fn read(shared: &Shared, port: u16) -> std::io::Result<()> {
    let mut client = login(port, "load-reader")?;
    client.try_subscribe("load/#", 1)?;
    while !shared.is_over() {
        match client.try_message() {
            Ok(_) => {
                shared.messages.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => client.ping()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Comes, does one thing, and goes: politely or not.
fn visit(shared: &Shared, port: u16) -> std::io::Result<()> {
    if shared.is_paused() {
        return Ok(());
    }
    let mut client = login(port, "load-visitor")?;
    match shared.visits.fetch_add(1, Ordering::Relaxed) % 4 {
        0 => client.disconnect(),
        1 => client.vanish(),
        2 => {
            client.try_subscribe("load/all", 0)?;
            client.vanish();
        }
        _ => {
            client.try_publish(&Message::new("load/visit", "hello").qos(1))?;
            client.disconnect();
        }
    }
    Ok(())
}

//! Agent and card in a thread of their own, as in dpu-server.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mqttshim_schema::SocketId;
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::card::Card;
use crate::program::{Connection, Listener, Program, eventually};
use crate::stage::{QUEUE, Stage};

type Job = Box<dyn FnOnce(&mut Stage) + Send>;

pub(crate) struct World {
    pub(crate) path: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    jobs: Option<Sender<Job>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl World {
    pub(crate) fn new() -> World {
        World::with_queue(QUEUE)
    }

    pub(crate) fn with_queue(queue: usize) -> World {
        World::with_limits(queue, 64)
    }

    pub(crate) fn with_limits(queue: usize, sessions: u32) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("session.sock");
        let bell = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let bell = Arc::new(bell.expect("an eventfd"));
        let mut world = World { path, folder, jobs: None, bell, thread: None };
        world.start(queue, sessions);
        world
    }

    fn start(&mut self, queue: usize, sessions: u32) {
        // Silent unless RUST_LOG says otherwise.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let (jobs, inbox) = channel();
        let (path, bell) = (self.path.clone(), Arc::clone(&self.bell));
        let thread =
            std::thread::spawn(move || run(Stage::new(&path, sessions, queue), &inbox, &bell));
        (self.jobs, self.thread) = (Some(jobs), Some(thread));
        self.on_stage(|_| ());
    }

    fn stop(&mut self) -> bool {
        self.jobs = None;
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }

    /// Does something between two turns.
    #[track_caller]
    pub(crate) fn on_stage<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Stage) -> R + Send + 'static,
    ) -> R {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |stage| drop(answer.send(job(stage))));
        self.jobs.as_ref().expect("running").send(job).expect("the agent's thread runs");
        rustix::io::write(&*self.bell, &1_u64.to_ne_bytes()).expect("an eventfd takes it");
        answered.recv().expect("the agent's thread did not panic")
    }

    #[track_caller]
    pub(crate) fn card<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Card) -> R + Send + 'static,
    ) -> R {
        self.on_stage(|stage| job(stage.card()))
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Card) -> bool + Send + Clone + 'static) {
        eventually(what, || {
            let is_so = is_so.clone();
            self.card(move |card| is_so(card))
        });
    }

    /// The agent dies, and another takes its place.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start(QUEUE, 64);
    }

    pub(crate) fn program(&self) -> Program {
        Program::open(&self.path)
    }

    /// A client connects, and the program accepts.
    #[track_caller]
    pub(crate) fn connection(&self, listener: &Listener) -> (Connection, SocketId) {
        let socket = self.card(Card::accept);
        (listener.accept(), socket)
    }

    /// Times the agent's thread went round in a while in which nobody wants anything.
    pub(crate) fn turns_in(&self, time: Duration) -> u64 {
        let before = self.on_stage(|stage| stage.turns);
        std::thread::sleep(time);
        self.on_stage(|stage| stage.turns) - before
    }
}

fn run(mut stage: Stage, inbox: &Receiver<Job>, bell: &OwnedFd) {
    loop {
        let mut has_moved = stage.turn();
        loop {
            match inbox.try_recv() {
                Ok(job) => {
                    job(&mut stage);
                    has_moved = true;
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        let has_backlog = stage.card.as_ref().is_some_and(Card::has_backlog);
        if has_moved || has_backlog || stage.agent.is_congested() {
            continue;
        }
        stage.sleep(Duration::from_secs(1), PollFd::new(bell, PollFlags::IN));
        let _ = rustix::io::read(bell, &mut [0_u8; 8][..]);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let faults = (!std::thread::panicking())
            .then(|| self.on_stage(|stage| stage.card.as_ref().map(|card| card.faults.clone())));
        let is_sound = self.stop();
        if let Some(faults) = faults.flatten() {
            assert!(faults.is_empty(), "the card found fault: {faults:?}");
            assert!(is_sound, "the agent's thread panicked");
        }
    }
}

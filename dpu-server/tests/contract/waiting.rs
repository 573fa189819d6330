//! The wait, and what ends it.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dpu_server::stack::{Event, Stack, Watch};

use crate::world::{PATIENCE, World, listen, meanwhile, until};

const WATCH: Watch = Watch(3);
const NAP: Duration = Duration::from_millis(60);

fn is_told(events: &[Event]) -> bool {
    events.contains(&Event::Watched(WATCH))
}

pub(crate) fn a_watched_descriptor_wakes_the_wait<W: World>(world: &mut W) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    world.stack().watch(WATCH, ours.as_fd(), false).unwrap();
    meanwhile(world, NAP, |_, events| is_told(events));
    let late = std::thread::spawn(move || {
        std::thread::sleep(NAP);
        theirs.write_all(b"x").unwrap();
        theirs
    });
    let start = Instant::now();
    let mut events = Vec::new();
    while !is_told(&events) {
        world.stack().wait(Some(PATIENCE), &mut events).unwrap();
        assert!(start.elapsed() < PATIENCE / 2);
    }
    late.join().unwrap();
}

pub(crate) fn a_watch_may_ask_for_room_instead<W: World>(world: &mut W) {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    world.stack().watch(WATCH, ours.as_fd(), false).unwrap();
    meanwhile(world, NAP, |_, events| is_told(events));
    world.stack().watch(WATCH, ours.as_fd(), true).unwrap();
    until(world, "there is room", |_, events| is_told(events).then_some(()));
}

pub(crate) fn a_watch_that_ended_wakes_nobody<W: World>(world: &mut W) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    world.stack().watch(WATCH, ours.as_fd(), false).unwrap();
    theirs.write_all(b"x").unwrap();
    until(world, "it is told", |_, events| is_told(events).then_some(()));
    world.stack().unwatch(ours.as_fd());
    meanwhile(world, NAP, |_, events| is_told(events));
}

pub(crate) fn a_wait_lasts_as_long_as_it_is_told<W: World>(world: &mut W) {
    listen(world, &[]);
    let mut events = Vec::new();
    // What a network has to say of itself at first is said.
    meanwhile(world, Duration::from_secs(1), |_, _| false);
    let at_once = (0..20).map(|_| {
        let start = Instant::now();
        world.stack().wait(Some(Duration::ZERO), &mut events).unwrap();
        start.elapsed()
    });
    let shortest = at_once.min().unwrap();
    assert!(shortest < NAP / 10, "{shortest:?}");
    let (start, mut waits) = (Instant::now(), 0);
    // A frame that concerns nobody may end a wait early; a stack that does not sleep would end them all.
    while let Some(rest) = NAP.checked_sub(start.elapsed()) {
        world.stack().wait(Some(rest), &mut events).unwrap();
        waits += 1;
    }
    assert!(waits <= 10 && start.elapsed() < PATIENCE, "{waits} in {:?}", start.elapsed());
    assert_eq!(events, []);
}

pub(crate) fn a_wait_without_a_limit_ends_with_news<W: World>(world: &mut W) {
    let address = listen(world, &[]);
    let client = std::thread::spawn(move || {
        std::thread::sleep(NAP);
        TcpStream::connect_timeout(&address, PATIENCE).unwrap()
    });
    let (start, mut events) = (Instant::now(), Vec::new());
    while events.is_empty() {
        world.stack().wait(None, &mut events).unwrap();
    }
    assert!(start.elapsed() < PATIENCE);
    client.join().unwrap();
}

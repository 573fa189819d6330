//! Forked processes that hold one listener, after their agent died.

use std::os::fd::{AsFd, OwnedFd};

use mqttshim_session::{Accept, Found, Session, SlotId};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::card::{Card, Said};
use crate::program::{PATIENCE, Program, wait};
use crate::world::World;

/// A listener that lost its agent, as each of the processes holds it.
fn orphan(world: &mut World) -> (OwnedFd, String) {
    let listener = world.program().listen(1883).expect("a free port");
    let copy = rustix::io::dup(listener.fd()).expect("a copy");
    let held = (copy, listener.name.clone());
    world.restart();
    held
}

fn join(world: &World, placeholder: &OwnedFd) -> Session {
    Session::join(&world.path, "worker", 3, placeholder.as_fd()).expect("a session")
}

/// Makes the listener again.
fn make(session: &Session, placeholder: &OwnedFd, name: &str) -> SlotId {
    let (slot, _) = session.bind(([127, 0, 0, 1], 1883).into(), &[]).expect("a free port");
    let named = Some((name, placeholder.as_fd()));
    session.listen(slot, 10, named, &[]).expect("the placeholder is held");
    slot
}

fn opened(world: &World) -> usize {
    let is_open = |said: &&Said| {
        matches!(said, Said::Notice { what: mqttshim_schema::Notice::SessionOpened, .. })
    };
    world.card(move |card| card.said.iter().filter(is_open).count())
}

#[track_caller]
fn accepts(world: &World, session: &Session, slot: SlotId, placeholder: &OwnedFd) {
    world.card(Card::accept);
    // The agent's wake-up may still lie there, and means nothing any more.
    loop {
        match session.accept(slot, placeholder.as_fd()) {
            Accept::Connection(_) => return,
            Accept::Empty => {}
            Accept::Lost => panic!("the session is gone"),
        }
        assert!(wait(placeholder, PollFlags::IN, PATIENCE).contains(PollFlags::IN));
    }
}

#[test]
fn they_meet_in_one_session_and_the_last_of_them_ends_it() {
    let mut world = World::new();
    let (placeholder, name) = orphan(&mut world);
    let (first, second) = (join(&world, &placeholder), join(&world, &placeholder));
    assert_eq!(first.find_listener(&name, placeholder.as_fd()), Ok(Found::Nowhere));
    assert_eq!(second.find_listener(&name, placeholder.as_fd()), Ok(Found::Soon));
    let slot = make(&first, &placeholder, &name);
    assert_eq!(second.find_listener(&name, placeholder.as_fd()), Ok(Found::Here(slot)));
    assert_eq!(opened(&world), 1);
    for _ in 0..5 {
        accepts(&world, &first, slot, &placeholder);
        accepts(&world, &second, slot, &placeholder);
    }
    drop(first);
    accepts(&world, &second, slot, &placeholder);
    let third = join(&world, &placeholder);
    assert_eq!(third.find_listener(&name, placeholder.as_fd()), Ok(Found::Here(slot)));
    drop((second, third));
    world.until("the session ended", |card| card.open() == 0);
}

#[test]
fn one_that_dies_before_it_made_the_listener_leaves_it_to_the_next() {
    let mut world = World::new();
    let (placeholder, name) = orphan(&mut world);
    let (first, second) = (join(&world, &placeholder), join(&world, &placeholder));
    assert_eq!(second.find_listener(&name, placeholder.as_fd()), Ok(Found::Soon));
    drop(first);
    crate::program::eventually("it is the second one's", || {
        second.find_listener(&name, placeholder.as_fd()) == Ok(Found::Nowhere)
    });
    let slot = make(&second, &placeholder, &name);
    accepts(&world, &second, slot, &placeholder);
}

#[test]
fn one_that_has_a_session_of_its_own_is_told_to_join_the_other() {
    let mut world = World::new();
    let (placeholder, name) = orphan(&mut world);
    let (first, own) = (join(&world, &placeholder), world.program());
    let slot = make(&first, &placeholder, &name);
    let found = own.session.find_listener(&name, placeholder.as_fd());
    assert_eq!(found, Ok(Found::Elsewhere));
    let joined = join(&world, &placeholder);
    assert_eq!(joined.find_listener(&name, placeholder.as_fd()), Ok(Found::Here(slot)));
    assert_eq!(opened(&world), 2);
    own.listen(0).unwrap();
}

#[test]
fn whoever_does_not_hold_the_listener_gets_a_session_of_its_own() {
    let mut world = World::new();
    let (placeholder, name) = orphan(&mut world);
    let first = join(&world, &placeholder);
    let slot = make(&first, &placeholder, &name);
    // A socket of the same name in a folder of one's own, as in a mount namespace.
    let folder = tempfile::tempdir().unwrap();
    let namesake = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(folder.path().join(&name)).unwrap();
    rustix::net::bind(&namesake, &address).unwrap();
    let stranger = join(&world, &namesake);
    assert_eq!(opened(&world), 2);
    assert_eq!(stranger.find_listener(&name, namesake.as_fd()), Err(Errno::INVAL));
    accepts(&world, &first, slot, &placeholder);
    drop(Program::open(&world.path));
}

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Whether `port` is ready within the time.
fn is_ready(port: &Mem, patience: Duration) -> bool {
    let descriptor = port.readiness();
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience.try_into().unwrap()))
        == Ok(1)
}

const SOON: Duration = Duration::from_secs(10);

fn send(port: &mut Mem, text: &[u8]) {
    let (_, transmit) = port.halves();
    transmit.frame(text.len(), |frame| frame.copy_from_slice(text));
    transmit.kick().unwrap();
}

fn receive(port: &mut Mem) -> Result<Vec<Vec<u8>>, Errno> {
    let mut frames = Vec::new();
    port.halves().0.burst(64, |frame| frames.push(frame.to_vec()))?;
    Ok(frames)
}

/// A card and its peer; connecting waits for the card, so that has a thread.
fn pair(folder: &tempfile::TempDir) -> (Mem, Mem) {
    let path = folder.path().join("port");
    let mut card = Mem::listen(&path).unwrap();
    let connecting = std::thread::spawn(move || Mem::connect(&path));
    assert!(is_ready(&card, SOON));
    assert!(receive(&mut card).unwrap().is_empty());
    (card, connecting.join().unwrap().unwrap())
}

#[test]
fn frames_go_both_ways_and_wake_who_sleeps() {
    let folder = folder();
    let (mut card, mut peer) = pair(&folder);
    assert_eq!(receive(&mut peer), Ok(vec![]));
    for round in 0..100 {
        assert!(!is_ready(&peer, Duration::ZERO), "round {round}");
        send(&mut card, b"down");
        assert!(is_ready(&peer, SOON), "round {round}");
        assert_eq!(receive(&mut peer).unwrap(), [b"down"]);
        send(&mut peer, b"up there");
        assert!(is_ready(&card, SOON), "round {round}");
        assert_eq!(receive(&mut card).unwrap(), [b"up there"]);
        assert_eq!(receive(&mut card), Ok(vec![]));
        assert_eq!(receive(&mut peer), Ok(vec![]));
    }
}

#[test]
fn without_a_peer_frames_are_lost_and_the_next_peer_gets_new_ones_only() {
    let folder = folder();
    let (mut card, peer) = pair(&folder);
    drop(peer);
    assert!(is_ready(&card, SOON));
    assert!(receive(&mut card).unwrap().is_empty());
    send(&mut card, b"to nobody");
    let path = folder.path().join("port");
    let connecting = std::thread::spawn(move || Mem::connect(&path));
    assert!(is_ready(&card, SOON));
    assert!(receive(&mut card).unwrap().is_empty());
    let mut peer = connecting.join().unwrap().unwrap();
    send(&mut card, b"to somebody");
    assert_eq!(receive(&mut peer).unwrap(), [b"to somebody"]);
}

#[test]
fn a_second_peer_is_turned_away() {
    let folder = folder();
    let (mut card, mut peer) = pair(&folder);
    let path = folder.path().join("port");
    let connecting = std::thread::spawn(move || Mem::connect(&path));
    assert!(is_ready(&card, SOON));
    assert!(receive(&mut card).unwrap().is_empty());
    let refused = connecting.join().unwrap();
    assert!(matches!(refused, Err(MemError::Refused { .. })), "{refused:?}");
    send(&mut card, b"still yours");
    assert_eq!(receive(&mut peer).unwrap(), [b"still yours"]);
}

#[test]
fn a_peer_is_told_that_its_card_is_gone() {
    let folder = folder();
    let (card, mut peer) = pair(&folder);
    drop(card);
    assert!(is_ready(&peer, SOON));
    assert_eq!(receive(&mut peer), Err(Errno::NETDOWN));
}

#[test]
fn nobody_there_is_an_error_that_says_what_to_do() {
    let folder = folder();
    let refused = Mem::connect(&folder.path().join("port"));
    assert!(refused.is_err_and(|error| error.to_string().contains("--port mem:")));
}

#[test]
fn a_ring_that_is_full_says_so_and_room_comes_back() {
    let folder = folder();
    let (mut card, mut peer) = pair(&folder);
    let mut sent = 0;
    while card.halves().1.has_room() {
        send(&mut card, &[3; 1000]);
        sent += 1;
        assert!(sent < 10_000);
    }
    let mut got = receive(&mut peer).unwrap().len();
    assert!(card.halves().1.has_room());
    while got < sent {
        got += receive(&mut peer).unwrap().len();
    }
    assert_eq!(got, sent);
}

#[test]
fn frames_that_a_full_ring_does_not_take_are_counted_and_those_to_nobody_are_not() {
    let folder = folder();
    let mut alone = Mem::listen(&folder.path().join("alone")).unwrap();
    send(&mut alone, b"is anybody there?");
    assert_eq!(alone.lost(), Lost::default());
    let (mut card, mut peer) = pair(&folder);
    let (mut sent, frame) = (0, [7; FRAME_BYTES_MAX]);
    while card.halves().1.has_room() {
        send(&mut card, &frame);
        sent += 1;
    }
    assert_eq!(card.lost(), Lost::default());
    for _ in 0..3 {
        send(&mut card, &frame);
    }
    assert_eq!(card.lost(), Lost { arrived: 0, leaving: 3 });
    let mut received = 0;
    while received < sent {
        received += receive(&mut peer).unwrap().len();
    }
    assert_eq!(receive(&mut peer), Ok(vec![]));
}

//! What the agent refuses, and what it costs when nothing happens.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use mqttshim_session::{OpenError, Read, Session, Write};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::card::{Card, Said};
use crate::program::{Program, wait};
use crate::stage::{QUEUE, Stage};
use crate::world::World;

#[test]
fn one_user_has_a_limited_number_of_sessions() {
    let world = World::with_limits(QUEUE, 3);
    let programs: Vec<_> = (0..3).map(|_| world.program()).collect();
    let refused = Session::open(&world.path, "one too many", 3).err().unwrap();
    let text = refused.to_string();
    assert!(matches!(refused, OpenError::Refused { .. }), "{text}");
    assert!(text.contains("has 3 sessions"), "{text}");
    drop(programs);
    crate::program::eventually("room again", || Session::open(&world.path, "the next", 3).is_ok());
}

#[test]
fn a_low_port_needs_the_right_to_bind_it() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        assert_eq!(world.program().listen(80).err(), Some(Errno::ACCESS));
        return;
    }
    drop(world.program().listen(80).expect("root may"));
    let folder = world.folder.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The test binary may lie where another user cannot read it.
    let binary = folder.join("child");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let status = Command::new(binary)
        .args(["--exact", "limits::unprivileged_child", "--nocapture"])
        .env("SEAM_PATH", &world.path)
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Run as another user by the test above; nothing when run as a test.
#[test]
fn unprivileged_child() {
    let Some(path) = std::env::var_os("SEAM_PATH") else { return };
    let program = Program::open(path.as_ref());
    assert_eq!(program.listen(80).err(), Some(Errno::ACCESS));
    drop(program.listen(1024).unwrap());
}

#[test]
fn options_travel_to_the_card_and_back() {
    let world = World::new();
    let program = world.program();
    let listener = program.listen(0).unwrap();
    program.session.set_option(listener.slot, 1, 2, &[1, 0, 0, 0]).unwrap();
    let mut value = [9; 8];
    assert_eq!(program.session.get_option(listener.slot, 1, 2, &mut value), Ok(4));
    assert_eq!(value, [7, 0, 0, 0, 9, 9, 9, 9]);
}

#[test]
fn a_lost_card_resets_every_connection_and_leaves_the_agent_idle() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let connections: Vec<_> = (0..10).map(|_| world.connection(&listener).0).collect();
    for connection in &connections {
        connection.becomes(PollFlags::OUT);
    }
    world.on_stage(|stage| stage.lose_card());
    for connection in &connections {
        let gone = PollFlags::HUP | PollFlags::ERR;
        crate::program::eventually("hung up", || connection.ready().contains(gone));
        assert_eq!(connection.read(&mut [0; 9]), Read::Failed(Errno::CONNRESET));
        assert_eq!(connection.read(&mut [0; 9]), Read::Eof);
        assert!(matches!(connection.write(b"x"), Write::Failed(Errno::PIPE | Errno::CONNRESET)));
    }
    assert!(
        !wait(listener.fd(), PollFlags::IN, Duration::from_millis(100)).contains(PollFlags::IN)
    );
    let turns = world.turns_in(Duration::from_millis(500));
    assert!(turns < 20, "{turns} turns in half a second of nothing");
    world.on_stage(|stage| stage.new_card());
    assert!(wait(listener.fd(), PollFlags::IN, crate::program::PATIENCE).contains(PollFlags::IN));
}

#[test]
fn a_doorbell_that_rang_as_the_card_went_is_not_heard_for_ever() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let (connection, _) = world.connection(&listener);
    connection.becomes(PollFlags::OUT);
    let connection = world.on_stage(move |stage| {
        assert!(stage.agent.prepare_sleep());
        assert_eq!(connection.write(b"ring"), Write::Bytes(4));
        stage.lose_card();
        stage.agent.turn(stage.channel.as_mut().unwrap(), Instant::now());
        connection
    });
    let turns = world.turns_in(Duration::from_millis(500));
    assert!(turns < 20, "{turns} turns in half a second of nothing");
    drop(connection);
}

#[test]
fn an_agent_with_idle_programs_sleeps() {
    let world = World::new();
    let listener = world.program().listen(0).unwrap();
    let _connections: Vec<_> = (0..10).map(|_| world.connection(&listener)).collect();
    let turns = world.turns_in(Duration::from_millis(1_000));
    assert!(turns < 20, "{turns} turns in a second of nothing");
}

#[test]
fn programs_that_knock_before_the_card_answers_wait_without_being_heard() {
    let world = World::new();
    world.on_stage(Stage::silence_card);
    let path = world.path.clone();
    let knocking = std::thread::spawn(move || Session::open(&path, "early", 3).err());
    let turns = world.turns_in(Duration::from_millis(500));
    assert!(turns < 20, "{turns} turns while a program waits");
    let refused = knocking.join().unwrap().expect("the card never answered");
    assert!(refused.to_string().contains("the card is not connected"), "{refused}");
}

#[test]
fn descriptors_and_slots_do_not_leak() {
    if std::env::var_os("SEAM_ALONE").is_none() {
        // Alone in its process: other tests open and close descriptors too.
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "limits::descriptors_and_slots_do_not_leak", "--nocapture"])
            .env("SEAM_ALONE", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let world = World::new();
    let program = world.program();
    let listener = program.listen(0).unwrap();
    let round = |number: usize| {
        let socket = world.card(Card::accept);
        let mut connection = listener.accept();
        connection.write_all(b"hello");
        match number % 4 {
            0 => world.card(move |card| card.data(socket, b"never read")),
            1 => world.card(move |card| card.reset(socket)),
            2 => world.card(move |card| card.eof(socket)),
            _ => {}
        }
        connection.close();
        world.until("closed", move |card| card.is_closed(socket));
        if number.is_multiple_of(50) {
            drop(program.listen(0).unwrap());
            drop(world.program().listen(0).unwrap());
            let refused = program.connect();
            let socket = world.card(|card| match card.said.last() {
                Some(Said::Connect { socket }) => *socket,
                other => panic!("{other:?}"),
            });
            world.card(move |card| card.connected(socket, 111));
            let gone = wait(refused.fd(), PollFlags::empty(), crate::program::PATIENCE);
            assert!(gone.contains(PollFlags::HUP));
        }
    };
    (0..100).for_each(round);
    let rest = || {
        world.until("all is closed", |card| card.open() == 1);
        world.on_stage(|stage| stage.settle());
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    };
    let before = rest();
    (0..1_000).for_each(round);
    assert_eq!(rest(), before);
}

//! How connections, sessions and the card end.

use super::*;

#[test]
fn the_clients_fin_follows_its_last_byte_and_the_broker_can_still_answer() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(4);
    let (client, key) = scene.client();
    scene.card.stack.client_send(client, b"last words");
    scene.card.stack.client_fin(client);
    scene.run();
    assert!(!scene.card.attach.seen(key).eof);
    assert_eq!([scene.read(key), scene.read(key)].concat(), b"last wor");
    assert_eq!(scene.read(key), b"ds");
    assert!(scene.card.attach.seen(key).eof);
    scene.write(key, b"answer");
    assert_eq!(scene.received(client), b"answer");
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn the_clients_reset_follows_its_last_byte_and_its_options_stay_until_the_broker_closes() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.stack.client_send(client, b"last");
    scene.card.stack.client_reset(client);
    scene.run();
    let seen = scene.card.attach.seen(key);
    assert_eq!(
        (&seen.bytes[..], seen.reset, seen.eof),
        (&b"last"[..], Some(Errno::CONNRESET), false)
    );
    assert_eq!(scene.card.stack.sockets_open(), 2);
    // Written before the broker knew: no reader, but its credit comes back.
    scene.write(key, b"too late");
    assert_eq!(scene.card.attach.seen(key).credit, 8);
    scene.close(key, false);
    assert_eq!(scene.card.stack.sockets_open(), 1);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn reset_connections_that_are_never_closed_count_against_the_limit_until_the_session_ends() {
    let mut scene = Scene::new();
    scene.card.config.sockets_max = 3;
    for _ in 0..2 {
        let (client, _) = scene.client();
        scene.card.stack.client_reset(client);
        // Comes to rest, or panics.
        scene.run();
    }
    assert_eq!((scene.card.sockets_open(), scene.card.stack.sockets_open()), (3, 3));
    scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!((scene.card.sockets_open(), scene.card.attach.accepted().len()), (3, 2));
    scene.card.attach.end(SESSION);
    scene.run();
    assert_eq!((scene.card.sockets_open(), scene.card.stack.sockets_open()), (0, 0));
}

#[test]
fn a_reset_met_by_a_send_is_reported_once_and_as_such() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.write(key, b"more than fits");
    scene.card.stack.client_reset(client);
    scene.run();
    let seen = scene.card.attach.seen(key);
    assert!(seen.reset.is_some() && !seen.eof);
    assert_eq!(seen.credit, 14);
}

#[test]
fn a_reset_behind_the_clients_fin_is_reported_too() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.stack.client_fin(client);
    scene.run();
    assert!(scene.card.attach.seen(key).eof);
    scene.card.stack.client_reset(client);
    scene.write(key, b"into the void");
    assert!(scene.card.attach.seen(key).reset.is_some());
    scene.close(key, false);
    assert_eq!(scene.card.stack.sockets_open(), 1);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn what_the_broker_wrote_before_it_closed_is_delivered_then_fin() {
    let mut scene = Scene::with(Trust::Observed, 1000);
    let (client, key) = scene.client();
    scene.card.attach.write(key, &[1; 2500]);
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    let lengths = [(); 3].map(|()| scene.received(client).len());
    assert_eq!(lengths, [1000, 1000, 500]);
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn a_broker_that_left_bytes_unread_resets_its_client() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"goodbye");
    scene.close(key, true);
    assert_eq!(scene.received(client), b"goodbye");
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
}

#[test]
fn bytes_that_were_never_handed_over_are_unread_too() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(1);
    let (client, key) = scene.client();
    scene.send(client, b"xy");
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
}

#[test]
fn a_zero_linger_resets_and_waits_for_nobody() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    let linger = [1i32.to_ne_bytes(), [0; 4]].concat();
    scene.card.stack.set_option(key, libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
    scene.card.attach.write(key, b"more than fits");
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn a_client_that_never_takes_the_rest_is_given_up_after_its_time() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"more than fits");
    scene.close(key, false);
    scene.now += LINGER - Duration::from_millis(1);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    scene.now += Duration::from_millis(1);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
    assert_eq!(scene.card.survey().card.lingers_given_up, 1);
}

#[test]
fn a_brokers_half_close_reaches_the_client_behind_the_last_byte_and_the_client_can_still_send() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"123456");
    scene.card.attach.shutdown(key, How::Write);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    assert_eq!(scene.received(client), b"1234");
    assert_eq!(scene.received(client), b"56");
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    scene.send(client, b"still here");
    assert_eq!(scene.read(key), b"still here");
}

#[test]
fn after_the_brokers_half_close_mqtt_still_passes_and_no_copy_is_added() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (half, key) = scene.subscriber(b'1');
    let (publisher, _) = scene.mqtt_client(b'p');
    scene.card.attach.shutdown(key, How::Write);
    scene.run();
    scene.send(half, PUBLISH_A);
    assert_eq!(scene.read(key), PUBLISH_A);
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.received(half), b"");
}

#[test]
fn the_end_of_a_session_frees_its_port_at_once_and_delivers_what_was_written() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"123456");
    scene.card.attach.end(SESSION);
    scene.run();
    assert!(scene.card.stack.connect(ADDRESS).is_none());
    let other = SessionId(2);
    scene.listen(other, Token(3), ADDRESS);
    assert_eq!([scene.received(client), scene.received(client)].concat(), b"123456");
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.survey().sessions_open, 1);
    assert_eq!(scene.card.survey().sessions_ended, 0);
}

#[test]
fn an_ended_sessions_client_has_five_seconds_however_slowly_it_reads() {
    let mut scene = Scene::with(Trust::Observed, 1);
    let (client, key) = scene.client();
    scene.card.attach.write(key, &[0; 100]);
    scene.card.attach.end(SESSION);
    scene.run();
    for _ in 0..4 {
        scene.now += Duration::from_secs(1);
        scene.received(client);
    }
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    scene.now += Duration::from_secs(1);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
    assert_eq!(scene.card.sockets_open(), 0);
    assert_eq!(scene.card.next_deadline(), None);
}

#[test]
fn counts_of_a_session_survive_it() {
    let mut scene = Scene::new();
    let (client, _) = scene.mqtt_client(b'p');
    scene.card.attach.outside(SESSION, 1, 0, "10.0.0.1:1884");
    scene.run();
    scene.send(client, PUBLISH_A);
    let reason = Reason::OutsideListener as usize;
    assert_eq!(scene.card.survey().core.publishes_broker[reason], 1);
    assert_eq!(scene.card.survey().slow[reason], 1);
    scene.card.attach.end(SESSION);
    scene.run();
    let survey = scene.card.survey();
    assert_eq!((survey.core.publishes_broker[reason], survey.core.connections), (1, 0));
    assert_eq!(survey.slow[reason], 0);
}

#[test]
fn a_card_that_stops_delivers_what_is_left_and_is_done() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.write(key, b"123456");
    scene.card.stop(scene.now);
    scene.run();
    assert_eq!(scene.card.sockets_open(), 1);
    assert_eq!([scene.received(client), scene.received(client)].concat(), b"123456");
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.sockets_open(), 0);
}

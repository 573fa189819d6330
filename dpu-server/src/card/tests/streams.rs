//! Bytes, distribution, back-pressure, sockets that brokers ask for.

use super::*;

#[test]
fn streams_pass_byte_for_byte_both_ways() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    let noise: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
    scene.send(client, &noise);
    assert_eq!(scene.read(key), noise);
    scene.write(key, &noise);
    assert_eq!(scene.received(client), noise);
    assert_eq!(scene.card.attach.seen(key).credit, noise.len());
}

#[test]
fn the_card_distributes_what_it_may_and_the_broker_never_sees_it() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (one, _) = scene.subscriber(b'1');
    let (two, _) = scene.subscriber(b'2');
    let (publisher, key) = scene.mqtt_client(b'p');
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.received(one), PUBLISH_A);
    assert_eq!(scene.received(two), PUBLISH_A);
    assert_eq!(scene.read(key), b"");
    let survey = scene.card.survey();
    assert_eq!((survey.core.publishes_card, survey.core.deliveries_card), (1, 2));
}

#[test]
fn every_byte_of_the_broker_returns_its_credit_a_swallowed_answer_too() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (_, key) = scene.subscriber(b'1');
    let written = CONNACK.len() + SUBACK.len() + PINGRESP.len();
    assert_eq!(scene.card.attach.seen(key).credit, written);
}

#[test]
fn copies_of_the_card_return_no_credit() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (one, key) = scene.subscriber(b'1');
    let before = scene.card.attach.seen(key).credit;
    let (publisher, _) = scene.mqtt_client(b'p');
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.received(one), PUBLISH_A);
    assert_eq!(scene.card.attach.seen(key).credit, before);
}

#[test]
fn a_client_whose_broker_does_not_read_is_not_read_either_until_it_does() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(1000);
    let (client, key) = scene.client();
    let bytes = vec![b'x'; 2 << 20];
    scene.send(client, &bytes);
    let taken = bytes.len() - scene.card.stack.unread(client);
    assert!(taken <= 1000 + TO_BROKER_BYTES_MAX + 2 * READ_BYTES, "{taken} bytes were taken");
    scene.card.attach.set_window(usize::MAX);
    assert_eq!(scene.read(key).len(), 1000);
    assert_eq!(scene.card.attach.seen(key).bytes.len(), bytes.len() - 1000);
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_gets_all_when_it_does() {
    let mut scene = Scene::with(Trust::Observed, 1000);
    let (stalled, slow) = scene.client();
    let (other, fast) = scene.client();
    scene.write(slow, &[1; 5000]);
    scene.write(fast, b"prompt");
    assert_eq!(scene.received(other), b"prompt");
    assert_eq!(scene.card.attach.seen(slow).credit, 1000);
    let mut bytes = 0;
    for _ in 0..5 {
        bytes += scene.received(stalled).len();
    }
    assert_eq!(bytes, 5000);
    assert_eq!(scene.card.attach.seen(slow).credit, 5000);
}

#[test]
fn a_full_way_to_the_host_keeps_bytes_in_order_and_resumes() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.attach.set_blocked(true);
    scene.send(client, b"first ");
    scene.send(client, b"second");
    assert_eq!(scene.card.attach.seen(key).bytes, b"");
    let waiting = scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!(scene.card.attach.accepted().len(), 1);
    scene.card.attach.set_blocked(false);
    scene.run();
    assert_eq!(scene.read(key), b"first second");
    assert_eq!(scene.card.attach.accepted().len(), 2);
    assert_eq!(scene.card.stack.ended(waiting), Ended::Open);
}

#[test]
fn clients_behind_many_that_are_held_back_are_read() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(0);
    let clients: Vec<_> = (0..READS_MAX + 10).map(|_| scene.client()).collect();
    for (client, _) in &clients {
        scene.card.stack.client_send(*client, &[0; 2 * TO_BROKER_BYTES_MAX]);
    }
    scene.run();
    for (client, _) in &clients {
        assert!(scene.card.stack.unread(*client) < 2 * TO_BROKER_BYTES_MAX);
    }
    let (last, key) = scene.client();
    // All held back are named as readable before the last one is.
    for (client, _) in &clients {
        scene.card.stack.client_send(*client, b"x");
    }
    scene.card.stack.client_send(last, b"prompt");
    scene.card.attach.set_window(usize::MAX);
    let mut events = Vec::new();
    scene.card.stack.wait(None, &mut events).unwrap();
    assert!(scene.card.turn(&events, scene.now, &AsTold), "more is left to do");
    scene.run();
    assert_eq!(scene.read(key), b"prompt");
}

#[test]
fn two_brokers_do_not_see_each_others_clients() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (subscriber, _) = scene.subscriber(b'1');
    let other: std::net::SocketAddr = (Ipv4Addr::LOCALHOST, 1884).into();
    scene.listen(SessionId(2), Token(3), other);
    let client = scene.card.stack.connect(other).unwrap();
    scene.run();
    let key = scene.card.attach.accepted().last().unwrap().0;
    scene.send(client, &connect(b'p'));
    scene.write(key, CONNACK);
    scene.read(key);
    scene.send(client, PUBLISH_A);
    assert_eq!(scene.read(key), PUBLISH_A);
    assert_eq!(scene.received(subscriber), b"");
}

#[test]
fn accepting_pauses_without_descriptors_and_goes_on_when_one_is_free() {
    let mut scene = Scene::new();
    let (first, key) = scene.client();
    scene.card.stack.set_sockets_max(2);
    let waiting = scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!(scene.card.attach.accepted().len(), 1);
    assert_eq!(scene.card.survey().card.accept_pauses, 1);
    scene.close(key, false);
    scene.run();
    assert_eq!(scene.card.stack.ended(first), Ended::Fin);
    assert_eq!(scene.card.attach.accepted().len(), 2);
    assert_eq!(scene.card.stack.ended(waiting), Ended::Open);
}

#[test]
fn accepting_is_tried_again_by_time_where_nothing_was_freed_here() {
    let mut scene = Scene::new();
    scene.card.stack.set_sockets_max(1);
    scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!(scene.card.next_deadline(), Some(scene.now + ACCEPT_RETRY));
    scene.card.stack.set_sockets_max(2);
    scene.now += ACCEPT_RETRY;
    scene.run();
    assert_eq!(scene.card.attach.accepted().len(), 1);
}

#[test]
fn a_port_in_use_is_refused_to_the_second_broker() {
    let mut scene = Scene::new();
    let request = scene.card.attach.bind(SessionId(2), Token(3), ADDRESS);
    scene.run();
    assert_eq!(scene.card.attach.answer(request), Some(Err(Errno::ADDRINUSE)));
    assert_eq!(scene.card.attach.key(Token(3)), None);
}

#[test]
fn a_brokers_own_connection_passes_bytes_untouched_or_says_why_not() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let server: std::net::SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
    scene.card.stack.serve(server);
    scene.card.attach.connect(SESSION, Token(3), server);
    scene.run();
    let key = scene.card.attach.key(Token(3)).unwrap();
    assert_eq!(scene.card.attach.outcome(key).unwrap().unwrap().peer, server);
    let remote = scene.card.stack.last_client().unwrap();
    scene.write(key, &connect(b'b'));
    assert_eq!(scene.received(remote), connect(b'b'));
    scene.send(remote, CONNACK);
    assert_eq!(scene.read(key), CONNACK);
    let nobody: std::net::SocketAddr = (Ipv4Addr::LOCALHOST, 10).into();
    scene.card.attach.connect(SESSION, Token(5), nobody);
    scene.run();
    let key = scene.card.attach.key(Token(5)).unwrap();
    assert_eq!(scene.card.attach.outcome(key), Some(Err(Errno::CONNREFUSED)));
    scene.close(key, false);
    assert_eq!(scene.card.sockets_open(), 2);
}

#[test]
fn a_listener_outside_the_card_sends_every_publish_to_the_broker() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (subscriber, _) = scene.subscriber(b'1');
    let (publisher, key) = scene.mqtt_client(b'p');
    scene.card.attach.outside(SESSION, 1, 0, "[::]:9001");
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.read(key), PUBLISH_A);
    assert_eq!(scene.received(subscriber), b"");
    assert_eq!(scene.card.survey().slow[Reason::OutsideListener as usize], 1);
    let (reason, name) = (Reason::OutsideListener, "[::]:9001".to_owned());
    assert_eq!(scene.card.survey().blind, [Blind { reason, name }]);
    scene.card.attach.outside(SESSION, -1, 0, "");
    scene.run();
    assert_eq!(scene.card.survey().blind, []);
}

#[test]
fn one_publish_reaches_a_thousand_subscribers_in_one_batch() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    scene.card.config.sockets_max = 2000;
    let mut subscribers = Vec::new();
    for index in 0..1000 {
        let (client, key) = scene.client();
        let name = format!("\x10\x10\0\x04MQTT\x04\x02\0\0\0\x04{index:04}").into_bytes();
        scene.send(client, &name);
        scene.write(key, CONNACK);
        scene.send(client, SUBSCRIBE_A);
        scene.write(key, &[SUBACK, PINGRESP].concat());
        scene.read(key);
        scene.received(client);
        subscribers.push(client);
    }
    let (publisher, _) = scene.mqtt_client(b'!');
    scene.send(publisher, PUBLISH_A);
    let got =
        subscribers.iter().filter(|&&client| scene.card.stack.client_recv(client) == PUBLISH_A);
    assert_eq!(got.count(), 1000);
}

#[test]
fn a_connection_that_cannot_be_read_is_named_by_its_clients_address_while_it_lasts() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    let name = scene.card.attach.accepted().last().unwrap().1.peer.to_string();
    scene.send(client, b"\x16\x03\x01");
    let reason = Reason::OpaqueConnection;
    assert_eq!(scene.card.survey().blind, [Blind { reason, name }]);
    scene.close(key, false);
    assert_eq!(scene.card.survey().blind, []);
}

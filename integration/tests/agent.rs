//! The agent as a process of its own, the card at the other end of the emulated channel.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::Duration;

use mqttshim_integration::crowd::{Crowd, payload};
use mqttshim_integration::{Agent, Broker, BrokerSetup, Client, Folder, Message, needs, wait};

#[test]
fn the_card_distributes_for_a_broker_behind_an_agent() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (agent, card) = Agent::start(&folder);
    let broker = Broker::on_card(&folder, agent.session());
    let mut crowd = Crowd::subscribe(broker.port(), 100, "far/away");
    let mut publisher = Client::new(broker.port(), "publisher");
    for number in 0..100 {
        publisher.publish(&Message::new("far/away", payload(number, 200)));
    }
    crowd.await_all(100, Duration::from_secs(10)).unwrap();
    card.await_metrics("the card distributed them", |it| it.by_card() >= 100.0);
}

#[test]
fn large_messages_and_qos_2_pass_the_channel_both_ways() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (agent, _card) = Agent::start(&folder);
    let broker = Broker::on_card(&folder, agent.session());
    let mut subscriber = Client::new(broker.port(), "subscriber");
    assert_eq!(subscriber.subscribe("large", 2), 2);
    let mut publisher = Client::new(broker.port(), "publisher");
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|at| (at * 31) as u8).collect();
    publisher.publish(&Message::new("large", bytes.clone()).qos(2));
    assert_eq!(subscriber.message().payload, bytes);
}

#[test]
fn a_broker_that_restarts_is_served_again() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (agent, _card) = Agent::start(&folder);
    let mut broker = Broker::on_card(&folder, agent.session());
    let port = broker.port();
    broker.process.kill();
    let session = Some(agent.session());
    let again =
        BrokerSetup { session, port: Some(port), name: Some("again"), ..BrokerSetup::default() };
    let broker = Broker::start(&folder, &again);
    Client::new(broker.port(), "guest").disconnect();
}

#[test]
fn a_card_that_restarts_serves_the_same_broker_again() {
    needs!("mosquitto");
    let folder = Folder::new();
    let (agent, mut card) = Agent::start(&folder);
    let mut broker = Broker::on_card(&folder, agent.session());
    let mut client = Client::new(broker.port(), "guest");
    card.restart();
    wait::until("the client's connection ends with the card", || client.ping().err());
    broker.await_service();
}

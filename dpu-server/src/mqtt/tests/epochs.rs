//! Permission by observation, rule (e): what was learned ends with every event that may change who may do what, and, where such events can
//! go unseen, after a time.

use std::time::Duration;

use super::observe::{answer, observing, plain, probe, serve, teach};
use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, Reason};

#[test]
fn a_change_of_policy_ends_everything_and_makes_open_windows_void() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    scene.core.handle_policy_change();
    probe(&mut scene, publisher, &publish("t", "1"));
    scene.core.handle_policy_change();
    serve(&mut scene, publisher, &both, &publish("t", "1"));
    teach(&mut scene, publisher, &both, "t");
    scene.card_takes(publisher, publish("t", "2"));
}

#[test]
fn while_the_broker_is_told_of_a_change_nothing_is_known() {
    let (mut scene, publisher, both) = plain();
    let admin = scene.connect(v311("admin"));
    teach(&mut scene, publisher, &both, "t");
    for packet in [publish("$CONTROL/x", "1"), publish_qos1("$CONTROL/x", 1, "2")] {
        let before = scene.core.counters().policy_changes;
        scene.client(admin, &packet);
        assert_eq!(scene.core.counters().policy_changes, before + 1);
        assert_eq!(scene.broker_gets(admin), [packet, PINGREQ.to_vec()].concat());
        scene.broker_takes(publisher, Reason::PolicyUnsettled, publish("t", "1"));
        answer(&mut scene, admin);
        teach(&mut scene, publisher, &both, "t");
    }
}

#[test]
fn a_change_that_is_told_with_qos_2_is_under_way_again_when_it_is_released() {
    let (mut scene, publisher, both) = plain();
    let admin = scene.connect(v311("admin"));
    teach(&mut scene, publisher, &both, "t");
    scene.client(admin, publish_qos2("$CONTROL/x", 1, "2"));
    answer(&mut scene, admin);
    teach(&mut scene, publisher, &both, "t");
    scene.client(admin, pubrel(1));
    scene.broker_takes(publisher, Reason::PolicyUnsettled, publish("t", "1"));
    answer(&mut scene, admin);
    teach(&mut scene, publisher, &both, "t");
    // The release of anything else is no change.
    scene.client(admin, publish_qos2("u", 2, "2"));
    scene.client(admin, pubrel(2));
    scene.card_takes(publisher, publish("t", "2"));
}

#[test]
fn while_somebody_proves_its_identity_anew_nothing_is_known() {
    let mut scene = observing();
    let subscriber = scene.connect(v5("s"));
    scene.subscribe_v5(subscriber, &[], "t", 0);
    let publisher = scene.connect(v5("p"));
    let packet = publish_v5("t", &[], "1");
    scene.broker_takes(publisher, Reason::Unobserved, publish_v5("t", &[], "0"));
    probe(&mut scene, publisher, &packet);
    serve(&mut scene, publisher, &[subscriber], &packet);
    scene.card_takes(publisher, &packet);
    scene.client(subscriber, packet_auth(0x19));
    scene.broker_takes(publisher, Reason::PolicyUnsettled, &packet);
    scene.broker(subscriber, packet_auth(0));
    let other = publish_v5("t", &[], "2");
    assert_eq!(scene.broker_takes(publisher, Reason::Probe, &other), PINGREQ);
    answer(&mut scene, publisher);
    // One that never finishes is no obstacle once it is gone.
    scene.client(subscriber, packet_auth(0x19));
    scene.close(subscriber);
    scene.subscriber("other", "t");
    probe(&mut scene, publisher, &publish_v5("t", &[], "3"));
}

fn packet_auth(code: u8) -> Vec<u8> {
    packet(0xF0, &[code, 0])
}

#[test]
fn while_a_client_of_the_publishers_name_connects_nothing_of_it_is_known() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    let rival = scene.knock(v311("p"));
    scene.broker_takes(publisher, Reason::PolicyUnsettled, publish("t", "1"));
    scene.broker(rival, connack(4, false, 5, &[]));
    answer_if_asked(&mut scene, publisher);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
}

fn answer_if_asked(scene: &mut Scene, conn: ConnId) {
    if scene.broker_gets(conn).ends_with(&PINGREQ) {
        answer(scene, conn);
    }
}

#[test]
fn what_was_learned_counts_for_a_while_and_where_changes_are_reported_until_one_is() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    scene.sleep(Duration::from_millis(4_999));
    scene.card_takes(publisher, publish("t", "1"));
    scene.sleep(Duration::from_millis(1));
    scene.broker_gets(publisher);
    both.iter().for_each(|&conn| drop(scene.client_gets(conn)));
    teach(&mut scene, publisher, &both, "t");
    scene.core.handle_policy_watched();
    scene.sleep(Duration::from_secs(86_400));
    scene.card_takes(publisher, publish("t", "2"));
}

//! Permission by observation, rule (g): what is watched and for how long what comes behind it waits; order; and decisions that are only
//! compared.

use std::time::Duration;

use super::observe::{MISSES, answer, first, observing, plain, probe, serve, teach};
use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{CoreConfig, Limits, Mode, Reason, Trust};

#[test]
fn a_topic_is_watched_from_its_second_publish_on() {
    let mut scene = observing();
    let subscriber = scene.subscriber("s", "#");
    let publisher = scene.connect(v311("p"));
    for topic in ["a", "b", "c"] {
        first(&mut scene, publisher, topic);
    }
    teach(&mut scene, publisher, &[subscriber], "b");
    scene.card_takes(publisher, publish("b", "1"));
}

#[test]
fn what_comes_behind_a_watched_message_waits_for_the_answer() {
    let (mut scene, publisher, both) = plain();
    let packet = publish("t", "probe");
    probe(&mut scene, publisher, &packet);
    let behind = [publish("t", "1"), subscribe(9, &["u"]), publish("t", "2")].concat();
    behind.chunks(5).for_each(|part| scene.client(publisher, part));
    scene.assert_quiet(publisher);
    serve(&mut scene, publisher, &both, &packet);
    for conn in both {
        assert_eq!(scene.client_gets(conn), [publish("t", "1"), publish("t", "2")].concat());
    }
    assert_eq!(scene.broker_gets(publisher), [subscribe(9, &["u"]), PINGREQ.to_vec()].concat());
    assert_eq!(scene.core.counters().publishes_held, 1);
}

#[test]
fn a_topic_that_is_denied_to_all_holds_up_no_other_topic_of_its_publisher() {
    let (mut scene, publisher, both) = plain();
    scene.subscriber("c", "denied");
    // Until it is looked at less often.
    for _ in 0..20 {
        scene.client(publisher, publish("denied", "1"));
        if scene.broker_gets(publisher).ends_with(&PINGREQ) {
            answer(&mut scene, publisher);
        }
    }
    teach(&mut scene, publisher, &both, "t");
    for payload in ["2", "3", "4"] {
        scene.broker_takes(publisher, Reason::NobodyServed, publish("denied", payload));
        scene.card_takes(publisher, publish("t", payload));
        both.iter().for_each(|&conn| assert_eq!(scene.client_gets(conn), publish("t", payload)));
    }
    // Of a larger one it is not known.
    scene.broker_takes(publisher, Reason::Unproven, publish("denied", "larger"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "5"));
}

#[test]
fn it_waits_no_longer_than_a_moment() {
    let (mut scene, publisher, both) = plain();
    let packet = publish("t", "probe");
    probe(&mut scene, publisher, &packet);
    scene.client(publisher, publish("t", "1"));
    scene.client(publisher, publish("t", "2"));
    assert_eq!(scene.core.next_deadline(), Some(scene.now + Duration::from_millis(20)));
    scene.sleep(Duration::from_millis(19));
    scene.assert_quiet(publisher);
    scene.sleep(Duration::from_millis(1));
    assert_eq!(scene.broker_gets(publisher), [publish("t", "1"), publish("t", "2")].concat());
    assert_eq!(scene.core.counters().broker(Reason::BarrierOut), 2);
    // And is not waited for again.
    scene.client(publisher, publish("t", "3"));
    assert_eq!(scene.broker_gets(publisher), publish("t", "3"));
    serve(&mut scene, publisher, &both, &packet);
}

#[test]
fn what_waits_goes_to_the_broker_when_the_client_is_gone_or_says_too_much() {
    let (mut scene, publisher, _) = plain();
    probe(&mut scene, publisher, &publish("t", "probe"));
    scene.client(publisher, publish("t", "1"));
    scene.core.handle_client_gone(publisher, scene.now);
    assert_eq!(scene.broker_gets(publisher), publish("t", "1"));
    let (mut scene, publisher, _) = plain();
    probe(&mut scene, publisher, &publish("t", "probe"));
    scene.client(publisher, publish("t", "1"));
    let much = publish_qos1("t", 1, &"x".repeat(300_000));
    scene.client(publisher, &much);
    assert_eq!(scene.broker_gets(publisher), [publish("t", "1"), much].concat());
}

#[test]
fn no_message_overtakes_one_that_went_through_the_broker() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    scene.client(publisher, publish_qos1("t", 1, "slow"));
    scene.broker_gets(publisher);
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "1")), PINGREQ);
    answer(&mut scene, publisher);
    scene.card_takes(publisher, publish("t", "2"));
}

#[test]
fn in_shadow_the_broker_distributes_and_what_differs_is_counted() {
    let config = CoreConfig { trust: Trust::Suback, mode: Mode::Shadow, ..CoreConfig::default() };
    let mut scene = Scene::with_config(config);
    let (a, b) = (scene.subscriber("a", "t"), scene.subscriber("b", "t"));
    let publisher = scene.connect(v311("p"));
    for (payload, served) in [("1", &[a, b][..]), ("2", &[a]), ("3", &[])] {
        let packet = publish("t", payload);
        assert_eq!(scene.broker_takes(publisher, Reason::Shadow, &packet), PINGREQ);
        serve(&mut scene, publisher, served, &packet);
    }
    let counters = scene.core.counters();
    assert_eq!((counters.shadow_same, counters.shadow_different), (1, 2));
    assert_eq!(counters.publishes_card, 0);
    scene.client(publisher, publish("t", "4"));
    scene.core.handle_broker_blocked(a);
    answer(&mut scene, publisher);
    assert_eq!(scene.core.counters().shadow_unproven, 1);
}

#[test]
fn in_shadow_who_is_left_out_is_compared_too() {
    let mut scene = Scene::with_config(CoreConfig { mode: Mode::Shadow, ..CoreConfig::default() });
    let (a, b) = (scene.subscriber("a", "t"), scene.subscriber("b", "t"));
    let publisher = scene.connect(v311("p"));
    first(&mut scene, publisher, "t");
    for number in 0..MISSES {
        let packet = publish("t", &number.to_string());
        probe(&mut scene, publisher, &packet);
        serve(&mut scene, publisher, &[a], &packet);
    }
    for (payload, served) in [("x", &[a][..]), ("y", &[a, b])] {
        let packet = publish("t", payload);
        scene.broker_takes(publisher, Reason::Shadow, &packet);
        serve(&mut scene, publisher, served, &packet);
    }
    let counters = scene.core.counters();
    assert_eq!((counters.shadow_same, counters.shadow_different), (1, 1));
}

#[test]
fn with_many_publishers_and_topics_everything_stays_bounded() {
    let mut scene = Scene::with_config(CoreConfig {
        limits: Limits { routes_max: 8, ..Limits::default() },
        ..CoreConfig::default()
    });
    let subscriber = scene.subscriber("s", "#");
    let publisher = scene.connect(v311("p"));
    for topic in 0..300 {
        let topic = format!("t{topic}");
        first(&mut scene, publisher, &topic);
        scene.client(publisher, publish(&topic, "probe"));
        scene.broker_gets(publisher);
    }
    let counters = scene.core.counters();
    assert_eq!(counters.broker(Reason::Probe), 256);
    assert_eq!(counters.broker(Reason::Ambiguous), 44);
    scene.client_gets(subscriber);
}

//! Just enough MQTT to be measured by our own clients: what the reference targets answer. No broker: topics are not compared.

use super::mqtt;

/// What a packet of a client asks for.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, and every PUBLISH from now on.
    Subscribed(Vec<u8>),
    /// That everybody gets the packet, and these bytes for the publisher.
    Distribute(Option<[u8; 4]>),
    /// Nothing.
    Nothing,
    /// The end.
    End,
}

/// Answers one whole packet.
pub(crate) fn answer(packet: &[u8]) -> Answer {
    match packet[0] >> 4 {
        1 => Answer::Bytes(vec![0x20, 2, 0, 0]),
        8 => {
            // One filter a packet: the last byte is its QoS, the first two of the body its Packet Identifier.
            let qos = packet[packet.len() - 1];
            Answer::Subscribed(vec![0x90, 3, packet[2], packet[3], qos])
        }
        3 => Answer::Distribute(mqtt::puback_for(packet)),
        4 => Answer::Nothing,
        12 => Answer::Bytes(vec![0xd0, 0]),
        _ => Answer::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_our_clients_send_is_answered() {
        let greeting = mqtt::Greeting { keepalive_s: 60, user: None };
        assert_eq!(answer(&mqtt::connect("a", &greeting)), Answer::Bytes(vec![0x20, 2, 0, 0]));
        let subscribed = answer(&mqtt::subscribe("t", 1));
        assert!(
            matches!(&subscribed, Answer::Subscribed(suback) if suback[..2] == [0x90, 3] && suback[4] == 1)
        );
        assert_eq!(answer(&mqtt::publish("t", 0, 0, b"x")), Answer::Distribute(None));
        let puback = Some(mqtt::puback(7));
        assert_eq!(answer(&mqtt::publish("t", 1, 7, b"x")), Answer::Distribute(puback));
        assert_eq!(answer(&mqtt::PINGREQ), Answer::Bytes(vec![0xd0, 0]));
        assert_eq!(answer(&mqtt::DISCONNECT), Answer::End);
    }
}

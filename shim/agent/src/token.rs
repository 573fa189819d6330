//! What an event of the agent's epoll set is about, packed into the event's 64 bits.

use mqttshim_schema::SessionId;
use rustix::event::epoll::EventData;

/// The source of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Token {
    /// A program knocks.
    Rendezvous,
    /// A program's control socket, by its number among those of the session.
    Control(SessionId, u32),
    /// A program rang.
    Doorbell(SessionId),
    /// The wire of the socket in this slot.
    Wire(SessionId, u32),
}

impl Token {
    /// The kind in 2 bits, then the slot or the number, then the session in the upper half.
    pub(crate) fn data(self) -> EventData {
        EventData::new_u64(self.to_bits())
    }

    fn to_bits(self) -> u64 {
        match self {
            Token::Rendezvous => 0,
            Token::Control(session, number) => {
                1 | u64::from(number) << 2 | u64::from(session.0) << 32
            }
            Token::Doorbell(session) => 2 | u64::from(session.0) << 32,
            Token::Wire(session, slot) => 3 | u64::from(slot) << 2 | u64::from(session.0) << 32,
        }
    }

    pub(crate) fn from_data(data: EventData) -> Token {
        Token::from_bits(data.u64())
    }

    fn from_bits(bits: u64) -> Token {
        let (session, low) = (SessionId((bits >> 32) as u32), bits as u32);
        match low & 3 {
            0 => Token::Rendezvous,
            1 => Token::Control(session, low >> 2),
            2 => Token::Doorbell(session),
            _ => Token::Wire(session, low >> 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_comes_back_from_its_bits() {
        let session = SessionId(u32::MAX);
        let largest = mqttshim_session::SOCKETS_MAX - 1;
        for token in [
            Token::Rendezvous,
            Token::Control(session, (1 << 30) - 1),
            Token::Doorbell(SessionId(1)),
            Token::Wire(session, largest),
            Token::Wire(SessionId(0), 0),
        ] {
            assert_eq!(Token::from_bits(token.to_bits()), token);
        }
    }
}

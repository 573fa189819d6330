//! What the clients do, in groups of steps; as data, so that a failing scenario can be printed and shrunk.
//!
//! ```text
//! Scenario ─► Group ─► Step: one client, one action
//!               │
//!               └─ one step: all is quiet before the next group
//!                  several: a race; the brokers may see them in any order between the clients
//! ```
//!
//! Any subset of the steps is a scenario too: a step whose client has no connection does nothing. Nothing here knows an answer.

use std::fmt;

use super::policy::Policy;
use crate::mqtt::{Login, Message, Version};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// Where it came from.
    pub seed: u64,
    /// How many clients there are.
    pub clients: usize,
    /// What happens, one after the other.
    pub groups: Vec<Group>,
}

/// Steps without a barrier between them.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its number before shrinking; messages carry it.
    pub number: usize,
    /// What happens to the broker, before the steps. A group with one has no steps.
    pub change: Option<Change>,
    /// At most one a client.
    pub steps: Vec<Step>,
}

/// Something that happens around the broker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The broker reads other rules.
    Policy(Policy),
    /// The card ends and comes back; alone, every client resets its connection.
    Restart,
    /// So many milliseconds pass, in which the clients only read.
    Pause(u64),
}

impl Group {
    /// Whether what it leads to depends on which client is faster.
    #[must_use]
    pub fn is_race(&self) -> bool {
        self.steps.len() > 1
    }
}

/// One client does something.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which.
    pub client: usize,
    /// What.
    pub action: Action,
    /// How its bytes are cut into writes.
    pub cut: Cut,
}

impl Step {
    /// Whether it takes longer than a short keep-alive.
    #[must_use]
    pub fn is_long(&self) -> bool {
        matches!(self.cut, Cut::Spread(_))
    }
}

/// How the bytes of a step are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cut {
    /// All in one write.
    Joined,
    /// One write a packet.
    Packets,
    /// So many writes, cut anywhere.
    Pieces(usize),
    /// One write a packet, so many milliseconds apart, in which the client says nothing else.
    Spread(u64),
}

/// What a client does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Opens a connection and sends CONNECT, and `early` in the same breath. A connection it has is taken over.
    Connect {
        /// The CONNECT; the player fills in the client identifier.
        login: Login,
        /// Whether the client identifier is left empty.
        is_anonymous: bool,
        /// The client by whose name it logs in.
        user: usize,
        /// What follows without waiting for CONNACK.
        early: Vec<Action>,
    },
    /// SUBSCRIBE.
    Subscribe {
        /// Topic Filters and options.
        filters: Vec<(String, u8)>,
        /// Subscription Identifier, MQTT 5.
        identifier: Option<u8>,
    },
    /// UNSUBSCRIBE of these filters.
    Unsubscribe(Vec<String>),
    /// PUBLISHes back to back.
    Publish(Vec<Post>),
    /// PINGREQ.
    Ping,
    /// DISCONNECT, in MQTT 5 with a reason and perhaps a new Session Expiry Interval.
    Disconnect {
        /// Reason Code.
        reason: u8,
        /// Seconds.
        expiry_s: Option<u32>,
    },
    /// Closes its side, reads the rest.
    Drop,
    /// Resets the connection.
    Reset,
    /// Stops reading.
    Stall,
    /// Reads again.
    Resume,
    /// Withholds acknowledgements of what it receives.
    HoldAcks,
    /// Sends what it withheld.
    ReleaseAcks,
    /// Bytes no broker has to like; then closes its side.
    Malformed(Vec<u8>),
}

/// A PUBLISH.
#[derive(Clone, Debug, Default)]
pub struct Post {
    /// Its number among all messages of the scenario, growing.
    pub number: usize,
    /// The group it belongs to.
    pub group: usize,
    /// Topic, QoS, RETAIN, properties; the payload is made by [`Post::payload`].
    pub message: Message,
    /// Bytes of payload: none, or at least its mark.
    pub payload_bytes: usize,
    /// A Topic Alias, and whether the topic is sent with it; MQTT 5.
    pub alias: Option<(u8, bool)>,
    /// Sent again at once with DUP, QoS 1 and 2.
    pub is_repeated: bool,
    /// Whether it says the same as every other such message on its topic, whoever publishes it.
    pub is_echo: bool,
}

impl Post {
    /// The payload: a mark that tells where it came from, and filling.
    #[must_use]
    pub fn payload(&self, client: usize) -> Vec<u8> {
        if self.payload_bytes == 0 {
            return Vec::new();
        }
        let qos = self.message.qos;
        let mark = match self.is_echo {
            true => Mark { group: 0, client: ECHOES_FROM, qos, number: 0 },
            false => Mark { group: self.group, client, qos, number: self.number },
        };
        let mut payload = mark.to_string().into_bytes();
        for index in payload.len()..self.payload_bytes {
            payload.push(b'a' + u8::try_from((index + mark.number) % 26).expect("below 26"));
        }
        payload
    }
}

/// The publisher that the marks of echoes name.
pub const ECHOES_FROM: usize = 200;

/// Added to a client to name the publisher of its wills.
pub const WILLS_FROM: usize = 100;

/// What the payload of a message tells about it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Mark {
    /// The group it was published in.
    pub group: usize,
    /// Its publisher. A will, which comes when its time has come, is of a publisher of its own: [`WILLS_FROM`] more.
    pub client: usize,
    /// The QoS it was published with.
    pub qos: u8,
    /// Its number.
    pub number: usize,
}

impl Mark {
    /// Reads it off the front of a payload.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Mark> {
        let end = payload.iter().position(|&byte| byte == b';')?;
        let text = std::str::from_utf8(&payload[..end]).ok()?;
        let mut parts = text.split('.');
        let mut number = || parts.next()?.parse::<usize>().ok();
        let (group, client, qos, number) = (number()?, number()?, number()?, number()?);
        Some(Mark { group, client, qos: u8::try_from(qos).ok()?, number })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}.{};", self.group, self.client, self.qos, self.number)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "scenario of seed {}, {} clients", self.seed, self.clients)?;
        for group in &self.groups {
            match &group.change {
                Some(Change::Policy(policy)) => {
                    let rules = policy.to_string().replace('\n', "\n          ");
                    writeln!(out, "{:>4}  rules: {}", group.number, rules.trim_end())?;
                }
                Some(change) => writeln!(out, "{:>4}  {change:?}", group.number)?,
                None => {}
            }
            for (index, step) in group.steps.iter().enumerate() {
                let head = match index {
                    0 => format!("{:>4}", group.number),
                    _ => "   +".to_owned(),
                };
                writeln!(out, "{head}  client {}: {} [{:?}]", step.client, step.action, step.cut)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Connect { login, is_anonymous, user, early } => {
                let version = match login.version {
                    Version::V31 => "3.1",
                    Version::V311 => "3.1.1",
                    Version::V5 => "5",
                };
                write!(out, "connect MQTT {version} clean={} ", login.is_clean)?;
                write!(out, "keep-alive={} anonymous={is_anonymous} ", login.keep_alive_s)?;
                write!(out, "user={user}")?;
                write!(out, " properties={:02x?}", login.properties)?;
                if let Some(will) = &login.will {
                    write!(out, " will {:?} qos={} ", will.topic, will.qos)?;
                    write!(out, "retain={} {:02x?}", will.is_retained, will.properties)?;
                }
                early.iter().try_for_each(|action| write!(out, "\n          at once: {action}"))
            }
            Action::Publish(posts) => {
                write!(out, "publish")?;
                for post in posts {
                    let message = &post.message;
                    write!(out, "\n          #{} {:?} ", post.number, message.topic)?;
                    write!(out, "qos={} retain={}", message.qos, message.is_retained)?;
                    write!(out, " {} B {:02x?}", post.payload_bytes, message.properties)?;
                    if let Some((alias, has_topic)) = post.alias {
                        write!(out, " alias={alias} with topic={has_topic}")?;
                    }
                    if post.is_echo {
                        write!(out, " an echo")?;
                    }
                    if post.is_repeated {
                        write!(out, " sent twice")?;
                    }
                }
                Ok(())
            }
            other => write!(out, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_tells_where_it_came_from() {
        let message = Message::new("t", "").qos(2);
        let post = Post { number: 41, group: 7, message, payload_bytes: 100, ..Post::default() };
        let payload = post.payload(3);
        assert_eq!(payload.len(), 100);
        let mark = Mark { group: 7, client: 3, qos: 2, number: 41 };
        assert_eq!(Mark::read(&payload), Some(mark));
        assert_eq!(Mark::read(b"anything"), None);
    }
}

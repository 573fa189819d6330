//! Values that are one of a few words.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

/// How the host is reached.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum ChannelChoice {
    /// The agent lives inside this process.
    Local,
    /// An agent of its own process connects to this path.
    Emulated(PathBuf),
}

/// Where the connections live.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum StackChoice {
    /// The machine's own sockets.
    Kernel,
    /// TCP/IP of our own, on a port.
    Smoltcp,
}

/// Where the frames of a stack of our own come from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum PortChoice {
    /// The interface of this name, by AF_XDP.
    Xdp(String),
    /// The TAP device of this name.
    Tap(String),
    /// Shared memory with whoever connects to this path.
    Mem(PathBuf),
}

/// How the card learns who may receive what.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum TrustChoice {
    /// By observing the broker.
    Observed,
    /// A granted SUBACK is permission.
    Suback,
}

/// Whether a broker may keep sessions from before the card.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum OlderSessionsChoice {
    /// It may.
    Possible,
    /// It keeps none.
    None,
}

/// What becomes of a decision for the card.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum DecisionChoice {
    /// The card distributes.
    Live,
    /// The card only compares.
    Shadow,
}

impl FromStr for ChannelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("local", "") => Ok(ChannelChoice::Local),
            ("emulated", path) if !path.is_empty() => Ok(ChannelChoice::Emulated(path.into())),
            ("doca", _) => Err("this build has no DOCA; use local, or emulated:PATH".to_owned()),
            _ => Err(format!("{text:?} is no channel; use local, or emulated:PATH")),
        }
    }
}

impl FromStr for StackChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "kernel" => Ok(StackChoice::Kernel),
            "smoltcp" => Ok(StackChoice::Smoltcp),
            _ => Err(format!("{text:?} is no stack of this build; use kernel, or smoltcp")),
        }
    }
}

impl FromStr for PortChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("xdp", name)) if !name.is_empty() => Ok(PortChoice::Xdp(name.to_owned())),
            Some(("tap", name)) if !name.is_empty() => Ok(PortChoice::Tap(name.to_owned())),
            Some(("mem", path)) if !path.is_empty() => Ok(PortChoice::Mem(path.into())),
            _ => Err(format!(
                "{text:?} is no port of this build; use xdp:INTERFACE, tap:INTERFACE or mem:PATH"
            )),
        }
    }
}

impl FromStr for TrustChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "observed" => Ok(TrustChoice::Observed),
            "suback" => Ok(TrustChoice::Suback),
            _ => Err(format!("{text:?} is no trust; use observed, or suback")),
        }
    }
}

impl FromStr for DecisionChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "live" => Ok(DecisionChoice::Live),
            "shadow" => Ok(DecisionChoice::Shadow),
            _ => Err(format!("{text:?} is no decision; use live, or shadow")),
        }
    }
}

impl FromStr for OlderSessionsChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "possible" => Ok(OlderSessionsChoice::Possible),
            "none" => Ok(OlderSessionsChoice::None),
            _ => Err(format!("{text:?} is no answer; use possible, or none")),
        }
    }
}

impl fmt::Display for PortChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortChoice::Xdp(name) => write!(f, "xdp:{name}"),
            PortChoice::Tap(name) => write!(f, "tap:{name}"),
            PortChoice::Mem(path) => write!(f, "mem:{}", path.display()),
        }
    }
}

impl fmt::Display for ChannelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelChoice::Local => f.write_str("local"),
            ChannelChoice::Emulated(path) => write!(f, "emulated:{}", path.display()),
        }
    }
}

macro_rules! from_text {
    ($($choice:ty),*) => {$(
        impl TryFrom<String> for $choice {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}

from_text!(
    ChannelChoice,
    DecisionChoice,
    OlderSessionsChoice,
    PortChoice,
    StackChoice,
    TrustChoice
);

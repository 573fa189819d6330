//! What every message has to keep beyond its wire form, stated once for both directions.
//!
//! Each rule takes a value and hands it back, so that `encode` and `decode` read as one line a field and neither can
//! accept what the other refuses. The numbers are in [`crate::limits`].

use crate::{
    DATA_BYTES_MAX, Hello, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, OPTION_VALUE_BYTES_MAX,
    OPTIONS_MAX, TEXT_BYTES_MAX,
};

/// A rule that a message breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Violation {
    /// A text field is longer than [`TEXT_BYTES_MAX`].
    #[error("field `{field}` has {bytes} bytes of text, at most {TEXT_BYTES_MAX} are allowed")]
    Text {
        /// The field's name in the schema.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A socket option's value is longer than [`OPTION_VALUE_BYTES_MAX`].
    #[error("a socket option of {bytes} bytes, at most {OPTION_VALUE_BYTES_MAX} are allowed")]
    OptionValue {
        /// Its length.
        bytes: usize,
    },
    /// More than [`OPTIONS_MAX`] socket options in one message.
    #[error("{count} socket options in one message, at most {OPTIONS_MAX} are allowed")]
    Options {
        /// How many.
        count: usize,
    },
    /// A Data message without bytes.
    #[error("a Data message without bytes")]
    EmptyData,
    /// A Data message with more than [`DATA_BYTES_MAX`].
    #[error("a Data message with {bytes} bytes, at most {DATA_BYTES_MAX} are allowed")]
    Data {
        /// How many.
        bytes: usize,
    },
    /// A Credit of nothing.
    #[error("a Credit of no bytes")]
    ZeroCredit,
    /// A Hello whose version range is empty or starts at 0.
    #[error("a Hello with schema versions {min} to {max}")]
    Versions {
        /// Oldest version announced.
        min: u16,
        /// Newest version announced.
        max: u16,
    },
    /// A Hello whose layout range is empty.
    #[error("a Hello with shared-memory layouts {min} to {max}")]
    Layouts {
        /// Oldest layout announced.
        min: u16,
        /// Newest layout announced.
        max: u16,
    },
    /// A Hello whose message size is outside [`MESSAGE_BYTES_MIN`]..=[`MESSAGE_BYTES_MAX`].
    #[error(
        "a Hello with messages of {bytes} bytes, {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_MAX} are allowed"
    )]
    MessageBytes {
        /// The size announced.
        bytes: u32,
    },
    /// A Hello that lets nothing be sent.
    #[error("a Hello with a window of no bytes")]
    ZeroWindow,
}

pub(crate) fn text<'a>(field: &'static str, text: &'a str) -> Result<&'a str, Violation> {
    match text.len() {
        0..=TEXT_BYTES_MAX => Ok(text),
        bytes => Err(Violation::Text { field, bytes }),
    }
}

pub(crate) fn option_value(value: &[u8]) -> Result<&[u8], Violation> {
    match value.len() {
        0..=OPTION_VALUE_BYTES_MAX => Ok(value),
        bytes => Err(Violation::OptionValue { bytes }),
    }
}

pub(crate) fn option_count(count: usize) -> Result<usize, Violation> {
    if count <= OPTIONS_MAX { Ok(count) } else { Err(Violation::Options { count }) }
}

pub(crate) fn stream_bytes(bytes: &[u8]) -> Result<&[u8], Violation> {
    match bytes.len() {
        0 => Err(Violation::EmptyData),
        1..=DATA_BYTES_MAX => Ok(bytes),
        more => Err(Violation::Data { bytes: more }),
    }
}

pub(crate) fn credit(bytes: u32) -> Result<u32, Violation> {
    if bytes == 0 { Err(Violation::ZeroCredit) } else { Ok(bytes) }
}

pub(crate) fn hello(hello: Hello<'_>) -> Result<Hello<'_>, Violation> {
    let Hello { version_min, version_max, layout_min, layout_max, .. } = hello;
    if version_min == 0 || version_min > version_max {
        return Err(Violation::Versions { min: version_min, max: version_max });
    }
    if layout_min > layout_max {
        return Err(Violation::Layouts { min: layout_min, max: layout_max });
    }
    if !(MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&(hello.max_message_bytes as usize)) {
        return Err(Violation::MessageBytes { bytes: hello.max_message_bytes });
    }
    if hello.window_bytes == 0 {
        return Err(Violation::ZeroWindow);
    }
    text("program", hello.program)?;
    Ok(hello)
}

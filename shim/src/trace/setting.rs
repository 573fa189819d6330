//! What `MQTTSHIM_TRACE` says.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Setting<'a> {
    pub(super) target: Target<'a>,
    /// A table at the end instead of lines.
    pub(super) is_summary: bool,
}

/// Where the trace goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Target<'a> {
    /// To what is standard error when the program starts.
    StandardError,
    /// To the end of a file.
    File(&'a OsStr),
}

impl Setting<'_> {
    /// `1` or a file's name, and perhaps `,summary`. `None`: no trace is wanted (`0`, or nothing at all).
    pub(super) fn parse(value: &OsStr) -> Option<Setting<'_>> {
        let (target, is_summary) = match value.as_bytes().strip_suffix(b",summary") {
            Some(target) => (target, true),
            None => (value.as_bytes(), false),
        };
        let target = match target {
            b"" | b"0" => return None,
            b"1" => Target::StandardError,
            file => Target::File(OsStr::from_bytes(file)),
        };
        Some(Setting { target, is_summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_and_perhaps_a_summary_are_understood() {
        let parse = |value: &'static str| {
            Setting::parse(OsStr::new(value)).map(|setting| (setting.target, setting.is_summary))
        };
        let file = |name: &'static str| Target::File(OsStr::new(name));
        assert_eq!(parse("1"), Some((Target::StandardError, false)));
        assert_eq!(parse("1,summary"), Some((Target::StandardError, true)));
        assert_eq!(parse("/tmp/a,b"), Some((file("/tmp/a,b"), false)));
        assert_eq!(parse("t,summary"), Some((file("t"), true)));
        for off in ["", "0", "0,summary", ",summary"] {
            assert_eq!(parse(off), None);
        }
    }
}

//! What two Hellos agree on.
//!
//! Each side announces a range of versions and layouts and the largest message it takes; both sides compute the same
//! [`Agreed`] from the same two Hellos, so nothing needs confirming. The newest common version wins.

use crate::Hello;

/// What holds on a channel after both Hellos.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Agreed {
    /// The schema version both speak.
    pub version: u16,
    /// Neither side sends a larger message, in bytes.
    pub max_message_bytes: u32,
    /// The shared-memory layout both use; 0 where one of them has no shared memory.
    pub layout: u16,
}

/// Which program to replace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outdated {
    /// The one that reports the error.
    Ours,
    /// The one it talked to.
    Theirs,
}

/// Why two Hellos do not fit together.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NegotiateError {
    /// No schema version is common.
    #[error(
        "no common schema version: {ours} speaks {} to {}, {theirs} speaks {} to {}; upgrade {}",
        ours_range.0, ours_range.1, theirs_range.0, theirs_range.1, older(*outdated, ours, theirs)
    )]
    Version {
        /// The program that reports it.
        ours: String,
        /// The program it talked to.
        theirs: String,
        /// Oldest and newest version of `ours`.
        ours_range: (u16, u16),
        /// Oldest and newest version of `theirs`.
        theirs_range: (u16, u16),
        /// Whose newest version is the lower one.
        outdated: Outdated,
    },
    /// No shared-memory layout is common.
    #[error(
        "no common session layout: {ours} uses {} to {}, {theirs} uses {} to {}; upgrade {}",
        ours_range.0, ours_range.1, theirs_range.0, theirs_range.1, older(*outdated, ours, theirs)
    )]
    Layout {
        /// The program that reports it.
        ours: String,
        /// The program it talked to.
        theirs: String,
        /// Oldest and newest layout of `ours`.
        ours_range: (u16, u16),
        /// Oldest and newest layout of `theirs`.
        theirs_range: (u16, u16),
        /// Whose newest layout is the lower one.
        outdated: Outdated,
    },
}

/// Computes what `ours` and `theirs` agree on; the order only matters for errors.
///
/// # Errors
/// [`NegotiateError`] when a range of one side ends before the other's begins.
pub fn negotiate(ours: &Hello<'_>, theirs: &Hello<'_>) -> Result<Agreed, NegotiateError> {
    let ours_range = (ours.version_min, ours.version_max);
    let theirs_range = (theirs.version_min, theirs.version_max);
    let version =
        newest_common(ours_range, theirs_range).map_err(|outdated| NegotiateError::Version {
            ours: ours.program.to_owned(),
            theirs: theirs.program.to_owned(),
            ours_range,
            theirs_range,
            outdated,
        })?;
    Ok(Agreed {
        version,
        max_message_bytes: ours.max_message_bytes.min(theirs.max_message_bytes),
        layout: layout(ours, theirs)?,
    })
}

fn layout(ours: &Hello<'_>, theirs: &Hello<'_>) -> Result<u16, NegotiateError> {
    if ours.layout_max == 0 || theirs.layout_max == 0 {
        return Ok(0);
    }
    let ours_range = (ours.layout_min, ours.layout_max);
    let theirs_range = (theirs.layout_min, theirs.layout_max);
    newest_common(ours_range, theirs_range).map_err(|outdated| NegotiateError::Layout {
        ours: ours.program.to_owned(),
        theirs: theirs.program.to_owned(),
        ours_range,
        theirs_range,
        outdated,
    })
}

/// The newest number in both ranges, or whose range ends first.
fn newest_common(ours: (u16, u16), theirs: (u16, u16)) -> Result<u16, Outdated> {
    let newest = ours.1.min(theirs.1);
    match newest >= ours.0.max(theirs.0) {
        true => Ok(newest),
        false if ours.1 < theirs.1 => Err(Outdated::Ours),
        false => Err(Outdated::Theirs),
    }
}

fn older<'a>(outdated: Outdated, ours: &'a str, theirs: &'a str) -> &'a str {
    match outdated {
        Outdated::Ours => ours,
        Outdated::Theirs => theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(program: &str, versions: (u16, u16), layouts: (u16, u16), bytes: u32) -> Hello<'_> {
        Hello {
            version_min: versions.0,
            version_max: versions.1,
            max_message_bytes: bytes,
            window_bytes: 65_536,
            layout_min: layouts.0,
            layout_max: layouts.1,
            program,
        }
    }

    #[test]
    fn the_newest_common_version_and_layout_and_the_smaller_message_win() {
        let ours = hello("agent", (1, 3), (2, 4), 65_536);
        let theirs = hello("dpu-server", (2, 5), (1, 3), 4080);
        let agreed = Agreed { version: 3, max_message_bytes: 4080, layout: 3 };
        assert_eq!(negotiate(&ours, &theirs), Ok(agreed));
        assert_eq!(negotiate(&theirs, &ours), Ok(agreed));
    }

    #[test]
    fn ranges_that_touch_in_one_version_agree_on_it() {
        let ours = hello("agent", (1, 2), (0, 0), 4080);
        let theirs = hello("dpu-server", (2, 3), (0, 0), 4080);
        assert_eq!(negotiate(&ours, &theirs).map(|agreed| agreed.version), Ok(2));
    }

    #[test]
    fn no_common_version_names_both_ranges_and_the_older_program() {
        let ours = hello("agent", (3, 4), (0, 0), 4080);
        let theirs = hello("dpu-server", (1, 2), (0, 0), 4080);
        assert_eq!(
            negotiate(&ours, &theirs).map_err(|error| error.to_string()),
            Err("no common schema version: agent speaks 3 to 4, dpu-server speaks 1 to 2; \
                 upgrade dpu-server"
                .to_owned())
        );
        assert!(matches!(
            negotiate(&theirs, &ours),
            Err(NegotiateError::Version { outdated: Outdated::Ours, .. })
        ));
    }

    #[test]
    fn no_common_layout_names_both_ranges_and_the_older_program() {
        let ours = hello("libmqttshim.so", (1, 1), (1, 1), 4080);
        let theirs = hello("agent", (1, 1), (2, 3), 4080);
        assert_eq!(
            negotiate(&ours, &theirs).map_err(|error| error.to_string()),
            Err("no common session layout: libmqttshim.so uses 1 to 1, agent uses 2 to 3; \
                 upgrade libmqttshim.so"
                .to_owned())
        );
    }

    #[test]
    fn a_side_without_shared_memory_leaves_the_layout_out() {
        let ours = hello("agent", (1, 1), (1, 2), 4080);
        let theirs = hello("dpu-server", (1, 1), (0, 0), 4080);
        assert_eq!(negotiate(&ours, &theirs).map(|agreed| agreed.layout), Ok(0));
    }
}

//! A program: its steps, as the interpreter reads them.

use std::fmt;

/// See the module. Its text begins with `program NAME` and ends with `end`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The seed it was made of; 0 if it was written by hand.
    pub seed: u64,
    /// A line each.
    pub steps: Vec<String>,
}

impl Program {
    /// Reads the first program of a text. Lines before it, and empty ones, do not count.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn parse(text: &str) -> Result<Program, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let title = lines.find(|line| line.starts_with("program")).ok_or("no line `program N`")?;
        let seed = title.split(' ').nth(1).and_then(|seed| seed.parse().ok());
        let steps: Vec<String> =
            lines.take_while(|&line| line != "end").map(str::to_owned).collect();
        Ok(Program { seed: seed.ok_or("no number after `program`")?, steps })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "program {}", self.seed)?;
        self.steps.iter().try_for_each(|step| writeln!(out, "{step}"))?;
        writeln!(out, "end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_it_was_written() {
        let program = Program { seed: 7, steps: vec!["socket 0 v4 wait".into(), "close 0".into()] };
        assert_eq!(Program::parse(&format!("\n{program}\nmore")), Ok(program));
        assert!(Program::parse("socket 0 v4 wait").is_err());
    }
}

//! Makes a failing program smaller while it still fails: ever smaller pieces are left out, and what is not needed stays out.

use std::time::{Duration, Instant};

use super::Program;

/// Leaves out what `fails` does not need, for at most `patience`. `fails` is asked about a program that has fewer steps.
pub fn shrink(
    program: &Program,
    patience: Duration,
    mut fails: impl FnMut(&Program) -> bool,
) -> Program {
    let deadline = Instant::now() + patience;
    let mut best = program.clone();
    loop {
        let known = best.steps.len();
        let mut piece = known.div_ceil(2);
        while piece > 0 {
            // From the end: what comes after the difference is not needed.
            let mut end = best.steps.len();
            while end > 0 {
                if Instant::now() >= deadline {
                    return best;
                }
                let start = end.saturating_sub(piece);
                let mut smaller = best.clone();
                smaller.steps.drain(start..end);
                if fails(&smaller) {
                    best = smaller;
                }
                end = start.min(best.steps.len());
            }
            piece /= 2;
        }
        if best.steps.len() == known {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let steps = (0..60).map(|number| format!("step {number}")).collect();
        let program = Program { seed: 1, steps };
        let has = |program: &Program, step: &str| program.steps.iter().any(|it| it == step);
        let small = shrink(&program, Duration::from_secs(60), |it| {
            has(it, "step 3") && has(it, "step 41") && has(it, "step 59")
        });
        assert_eq!(small.steps, ["step 3", "step 41", "step 59"]);
    }
}

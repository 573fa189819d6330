//! Makes a failing scenario smaller while it still fails: fewer groups, then fewer steps, then fewer messages.
//!
//! Greedy: ever smaller pieces are left out, and what is not needed stays out. Bounded in time; the smallest so far is returned.

use std::time::{Duration, Instant};

use super::scenario::{Action, Scenario};

/// Leaves out what `fails` does not need, for at most `patience`.
pub fn shrink(
    scenario: &Scenario,
    patience: Duration,
    mut fails: impl FnMut(&Scenario) -> bool,
) -> Scenario {
    let deadline = Instant::now() + patience;
    let mut best = scenario.clone();
    loop {
        let known = size(&best);
        for list in [Part::Groups, Part::Steps, Part::Posts] {
            best = thin_out(best, list, deadline, &mut fails);
        }
        if size(&best) == known || Instant::now() >= deadline {
            return best;
        }
    }
}

#[derive(Clone, Copy)]
enum Part {
    Groups,
    Steps,
    Posts,
}

fn thin_out(
    mut best: Scenario,
    part: Part,
    deadline: Instant,
    fails: &mut impl FnMut(&Scenario) -> bool,
) -> Scenario {
    let mut piece = count(&best, part).div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < count(&best, part) {
            if Instant::now() >= deadline {
                return best;
            }
            let smaller = without(&best, part, at, piece);
            if fails(&smaller) {
                best = smaller;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    best
}

fn size(scenario: &Scenario) -> usize {
    [Part::Groups, Part::Steps, Part::Posts].into_iter().map(|part| count(scenario, part)).sum()
}

fn count(scenario: &Scenario, part: Part) -> usize {
    let steps = scenario.groups.iter().flat_map(|group| &group.steps);
    match part {
        Part::Groups => scenario.groups.len(),
        Part::Steps => steps.count(),
        Part::Posts => steps
            .map(|step| match &step.action {
                Action::Publish(posts) => posts.len(),
                Action::Connect { early, .. } => early.len(),
                _ => 0,
            })
            .sum(),
    }
}

/// Without `length` parts from `at` on, counted over the whole scenario.
fn without(scenario: &Scenario, part: Part, at: usize, length: usize) -> Scenario {
    let mut index = 0;
    let mut stays = || {
        index += 1;
        !(at < index && index <= at + length)
    };
    let mut smaller = scenario.clone();
    match part {
        Part::Groups => smaller.groups.retain(|_| stays()),
        Part::Steps => {
            smaller.groups.iter_mut().for_each(|group| group.steps.retain(|_| stays()));
        }
        Part::Posts => {
            for step in smaller.groups.iter_mut().flat_map(|group| &mut group.steps) {
                match &mut step.action {
                    Action::Publish(posts) => posts.retain(|_| stays()),
                    Action::Connect { early, .. } => early.retain(|_| stays()),
                    _ => {}
                }
            }
        }
    }
    smaller.groups.retain(|group| !group.steps.is_empty() || group.change.is_some());
    smaller
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{Cut, Group, Post, Step};
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let post = |number| Post { number, ..Post::default() };
        let step = |client| Step {
            client,
            action: Action::Publish((0..5).map(|n| post(client * 10 + n)).collect()),
            cut: Cut::Joined,
        };
        let groups = (0..8).map(|number| Group {
            number,
            change: None,
            steps: vec![step(number), step(number + 8)],
        });
        let scenario = Scenario { seed: 0, clients: 16, groups: groups.collect() };
        let has = |scenario: &Scenario, number: usize| {
            scenario.groups.iter().flat_map(|group| &group.steps).any(|step| match &step.action {
                Action::Publish(posts) => posts.iter().any(|post| post.number == number),
                _ => false,
            })
        };
        let small = shrink(&scenario, Duration::from_secs(60), |it| has(it, 31) && has(it, 122));
        assert_eq!(count(&small, Part::Posts), 2);
        assert_eq!(count(&small, Part::Steps), 2);
    }
}

//! Makes a program of a seed.
//!
//! The generator guesses what the steps so far led to, to make steps that have something to do; the interpreter finds out. One
//! slot in ten is any, whatever is guessed of it: calls on the wrong kind of socket, on closed and on reused numbers.

use super::Program;
use crate::differential::Rng;

const SLOTS: usize = 8;
const CLIENTS: usize = 4;
const SETS: usize = 2;
/// Sizes where something changes: one, a message of the channel and one more, several.
const SIZES: [usize; 12] = [0, 1, 2, 7, 100, 1000, 4000, 4081, 5000, 12_000, 20_000, 40_000];
const LARGE: [usize; 4] = [65_536, 65_537, 150_000, 250_000];
const OPTIONS: [&str; 18] = [
    "SO_KEEPALIVE",
    "SO_OOBINLINE",
    "SO_PRIORITY",
    "SO_BROADCAST",
    "TCP_NODELAY",
    "TCP_KEEPIDLE",
    "TCP_KEEPINTVL",
    "TCP_KEEPCNT",
    "TCP_SYNCNT",
    "IP_TOS",
    "IP_TTL",
    "TCP_USER_TIMEOUT",
    "SO_REUSEPORT",
    "SO_TYPE",
    "SO_PROTOCOL",
    "SO_DOMAIN",
    "SO_ACCEPTCONN",
    "SO_REUSEADDR",
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Free,
    Fresh,
    Bound,
    Listener,
    Connection,
    Other,
}

struct Generator {
    rng: Rng,
    steps: Vec<String>,
    slots: [Kind; SLOTS],
    clients: [bool; CLIENTS],
    sets: [bool; SETS],
    /// The kid's, if there is one.
    kid: Option<[Kind; SLOTS]>,
    /// Whose step it is.
    is_kid_s: bool,
}

/// The program of a seed, always the same.
#[must_use]
pub fn generate(seed: u64) -> Program {
    let mut generator = Generator {
        rng: Rng::new(seed),
        steps: Vec::new(),
        slots: [Kind::Free; SLOTS],
        clients: [false; CLIENTS],
        sets: [false; SETS],
        kid: None,
        is_kid_s: false,
    };
    if generator.rng.percent(90) {
        generator.begin();
    }
    let length = generator.steps.len() + generator.rng.between(8, 50);
    while generator.steps.len() < length {
        generator.step();
    }
    Program { seed, steps: generator.steps }
}

impl Generator {
    /// A step of whoever acts.
    fn say(&mut self, step: String) {
        let step = if self.is_kid_s { format!("k {step}") } else { step };
        self.steps.push(step);
    }

    /// A step that only the parent does.
    fn say_parent(&mut self, step: String) {
        self.steps.push(step);
    }

    /// What the acting process' slots hold.
    fn slots(&mut self) -> &mut [Kind; SLOTS] {
        match &mut self.kid {
            Some(slots) if self.is_kid_s => slots,
            _ => &mut self.slots,
        }
    }

    /// A server with a client, mostly.
    fn begin(&mut self) {
        let family = self.family();
        let mode = self.mode();
        let address = *self.rng.pick(&["own", "own", "own", "any", "zero"]);
        self.say(format!("socket 0 {family} {mode}"));
        if self.rng.percent(30) {
            self.option(0);
        }
        self.say(format!("bind 0 {address}"));
        self.say("listen 0 9".into());
        self.slots[0] = Kind::Listener;
        if self.rng.percent(60) {
            self.say("epoll 0".into());
            self.sets[0] = true;
            self.register(0, 0);
        }
        if self.rng.percent(85) {
            self.say("client connect 0 0".into());
            self.clients[0] = true;
            let flags = self.accept_flags();
            self.say(format!("accept 1 0 {flags}"));
            self.slots[1] = Kind::Connection;
            if self.sets[0] && self.rng.percent(80) {
                self.register(0, 1);
            }
        }
    }

    fn step(&mut self) {
        self.is_kid_s = self.kid.is_some() && self.rng.percent(30);
        match self.rng.weighted(&[22, 18, 16, 14, 10, 6, 4, 6, 3, 3]) {
            0 => self.read_or_write(),
            1 => self.client(),
            2 => self.look(),
            3 => self.life(),
            4 => self.watch(),
            5 => self.options(),
            6 => self.bulk(),
            7 => self.blocked(),
            8 => self.kid(),
            _ => self.copy(),
        }
        self.is_kid_s = false;
    }

    fn family(&mut self) -> &'static str {
        self.rng.pick::<&str>(&["v4", "v4", "v4", "v4", "v6"])
    }

    fn mode(&mut self) -> &'static str {
        self.rng.pick::<&str>(&["wait", "wait", "nowait"])
    }

    fn accept_flags(&mut self) -> &'static str {
        self.rng.pick::<&str>(&["plain", "plain", "nowait", "cloexec"])
    }

    /// A slot of this kind if there is one, or one that is not empty, or any.
    fn slot(&mut self, kind: Kind) -> usize {
        let slots = *self.slots();
        let fitting = |fits: &dyn Fn(Kind) -> bool| -> Vec<usize> {
            (0..SLOTS).filter(|&slot| fits(slots[slot])).collect()
        };
        let of_kind = fitting(&|it| it == kind);
        let used = fitting(&|it| it != Kind::Free);
        match self.rng.below(100) {
            0..4 => self.rng.below(SLOTS),
            4..8 if !used.is_empty() => *self.rng.pick(&used),
            _ if !of_kind.is_empty() => *self.rng.pick(&of_kind),
            _ if !used.is_empty() => *self.rng.pick(&used),
            _ => self.rng.below(SLOTS),
        }
    }

    fn free_slot(&mut self) -> usize {
        let slots = *self.slots();
        let free = (0..SLOTS).find(|&slot| slots[slot] == Kind::Free);
        free.unwrap_or_else(|| self.rng.below(SLOTS))
    }

    fn becomes(&mut self, slot: usize, before: Kind, after: Kind) {
        let it = &mut self.slots()[slot];
        if *it == before {
            *it = after;
        }
    }

    fn any_client(&mut self, connected: bool) -> usize {
        let fitting: Vec<usize> =
            (0..CLIENTS).filter(|&client| self.clients[client] == connected).collect();
        if fitting.is_empty() { self.rng.below(CLIENTS) } else { *self.rng.pick(&fitting) }
    }

    fn size(&mut self) -> usize {
        *self.rng.pick(&SIZES)
    }

    fn read_or_write(&mut self) {
        let (slot, size) = (self.slot(Kind::Connection), self.size());
        if self.rng.percent(60) {
            let call = *self
                .rng
                .pick(&["read", "read", "recv", "recvfrom", "readv", "recvmsg", "recvmmsg"]);
            let flag =
                *self.rng.pick(&["-", "-", "-", "peek", "peek", "dontwait", "waitall", "trunc"]);
            self.say(format!("read {slot} {call} {size} {flag}"));
        } else {
            let call = *self
                .rng
                .pick(&["write", "send", "sendto", "writev", "sendmsg", "sendmmsg", "sendfile"]);
            let flag = *self.rng.pick(&["-", "-", "dontwait", "nosignal"]);
            self.say(format!("write {slot} {call} {size} {flag}"));
        }
    }

    fn client(&mut self) {
        // Without any there is nothing to do but to connect one.
        let chosen = match self.clients.contains(&true) {
            true => self.rng.weighted(&[8, 40, 22, 6, 5, 4, 8]),
            false => 0,
        };
        match chosen {
            0 => {
                let (client, slot) = (self.any_client(false), self.slot(Kind::Listener));
                self.say_parent(format!("client connect {client} {slot}"));
                self.clients[client] = true;
                if self.rng.percent(70) {
                    self.accept(slot);
                }
            }
            1 => {
                let (client, size) = (self.any_client(true), self.size());
                self.say_parent(format!("client write {client} {size}"));
            }
            2 => {
                let (client, size) = (self.any_client(true), self.size());
                self.say_parent(format!("client read {client} {size}"));
            }
            3 => {
                let (client, how) = (self.any_client(true), *self.rng.pick(&["wr", "wr", "rdwr"]));
                self.say_parent(format!("client shut {client} {how}"));
            }
            4 => {
                let client = self.any_client(true);
                self.say_parent(format!("client close {client}"));
                self.clients[client] = false;
            }
            5 => {
                let client = self.any_client(true);
                self.say_parent(format!("client reset {client}"));
                self.clients[client] = false;
            }
            _ => {
                let client = self.any_client(true);
                self.say_parent(format!("client state {client}"));
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        let (slot, flags) = (self.free_slot(), self.accept_flags());
        self.say(format!("accept {slot} {listener} {flags}"));
        self.becomes(slot, Kind::Free, Kind::Connection);
        if self.sets[0] && self.rng.percent(50) {
            self.register(0, slot);
        }
    }

    fn any_slot(&mut self) -> usize {
        let kind =
            *self.rng.pick(&[Kind::Connection, Kind::Connection, Kind::Listener, Kind::Fresh]);
        self.slot(kind)
    }

    /// A question about what is ready, or what is.
    fn look(&mut self) {
        let (one, other) = (self.any_slot(), self.any_slot());
        let limit = *self.rng.pick(&[0, 0, 0, 5]);
        match self.rng.weighted(&[40, 12, 10, 14, 6, 6, 6, 6]) {
            0 => {
                let set = self.rng.below(SETS);
                let set = if self.sets[set] { set } else { 0 };
                self.say(format!("wait {set} {limit}"));
            }
            1 => {
                let events = *self.rng.pick(&["in", "in,out", "in,out,rdhup", "out"]);
                self.say(format!("poll {limit} {one} {other} {events}"));
            }
            2 => self.say(format!("select {limit} {one} {other}")),
            3 => self.say(format!("state {one}")),
            4 => self.say(format!("name {one}")),
            5 => self.say(format!("peer {one}")),
            6 => self.say(format!("error {one}")),
            _ => self.say(format!("tcpstate {one}")),
        }
    }

    fn life(&mut self) {
        match self.rng.weighted(&[12, 8, 8, 14, 14, 14, 12, 3, 2]) {
            0 => {
                let (slot, family, mode) = (self.free_slot(), self.family(), self.mode());
                self.say(format!("socket {slot} {family} {mode}"));
                self.becomes(slot, Kind::Free, Kind::Fresh);
            }
            1 => {
                let slot = self.slot(Kind::Fresh);
                let address = *self.rng.pick(&["own", "any", "zero", "zero"]);
                self.say(format!("bind {slot} {address}"));
                self.becomes(slot, Kind::Fresh, Kind::Bound);
            }
            2 => {
                let kind = *self.rng.pick(&[Kind::Bound, Kind::Bound, Kind::Fresh, Kind::Listener]);
                let (slot, backlog) = (self.slot(kind), self.rng.between(5, 20));
                self.say(format!("listen {slot} {backlog}"));
                self.becomes(slot, kind, Kind::Listener);
            }
            3 => {
                let slot = self.slot(Kind::Listener);
                self.accept(slot);
            }
            4 => {
                let slot = self.slot(Kind::Fresh);
                self.say(format!("connect {slot}"));
                self.becomes(slot, Kind::Fresh, Kind::Connection);
                if let Some(client) = (0..CLIENTS).find(|&client| !self.clients[client]) {
                    self.clients[client] = true;
                }
            }
            5 => {
                let slot = self.any_slot();
                self.say(format!("close {slot}"));
                self.slots()[slot] = Kind::Free;
            }
            6 => {
                let slot = self.any_slot();
                let how = *self.rng.pick(&["wr", "wr", "rd", "rdwr"]);
                self.say(format!("shutdown {slot} {how}"));
            }
            7 => {
                let slot = self.free_slot();
                self.say(format!("file {slot}"));
                self.becomes(slot, Kind::Free, Kind::Other);
            }
            _ => {
                let state = *self.rng.pick(&["off", "on"]);
                self.say_parent(format!("elsewhere {state}"));
            }
        }
    }

    fn register(&mut self, set: usize, slot: usize) {
        let events = *self.rng.pick(&[
            "in",
            "in",
            "in,rdhup",
            "in,out",
            "in,out,rdhup",
            "out",
            "in,et",
            "in,out,et",
            "in,out,rdhup,et",
            "out,et",
            "in,once",
            "in,out,once",
            "in,rdhup,once",
        ]);
        let operation = *self.rng.pick(&["add", "add", "add", "add", "add", "mod", "del"]);
        self.say(format!("ctl {set} {operation} {slot} {events}"));
    }

    fn watch(&mut self) {
        let set = self.rng.below(SETS);
        if !self.sets[set] {
            self.say(format!("epoll {set}"));
            self.sets[set] = true;
        }
        match self.rng.weighted(&[40, 25, 12, 5, 4]) {
            0 => {
                let slot = self.any_slot();
                self.register(set, slot);
            }
            1 => {
                let slot = self.slot(Kind::Connection);
                let events =
                    *self.rng.pick(&["in", "in,out", "in,et", "out,et", "in,once", "in,rdhup"]);
                self.say(format!("ctl {set} mod {slot} {events}"));
            }
            2 => {
                let slot = self.any_slot();
                self.say(format!("ctl {set} del {slot} in"));
            }
            3 => self.say(format!("nest {set} {}", 1 - set)),
            _ => {
                self.say(format!("eclose {set}"));
                self.sets[set] = false;
            }
        }
    }

    fn option(&mut self, slot: usize) {
        let (option, value) = (*self.rng.pick(&OPTIONS), *self.rng.pick(&[0, 1, 1, 2, 5, 30]));
        self.say(format!("set {slot} {option} {value}"));
    }

    fn options(&mut self) {
        let slot = self.any_slot();
        match self.rng.below(8) {
            0 | 1 => self.option(slot),
            2 | 3 => {
                let option = *self.rng.pick(&OPTIONS);
                self.say(format!("get {slot} {option}"));
            }
            4 => {
                let (side, time) =
                    (*self.rng.pick(&["receive", "send"]), *self.rng.pick(&[0, 10, 20]));
                self.say(format!("timeout {slot} {side} {time}"));
            }
            5 => {
                let linger = *self.rng.pick(&["off", "reset"]);
                self.say(format!("linger {slot} {linger}"));
            }
            6 => self.say(format!("flags {slot}")),
            _ => {
                let (call, mode) = (*self.rng.pick(&["fcntl", "ioctl"]), self.mode());
                self.say(format!("mode {slot} {call} {mode}"));
            }
        }
    }

    fn bulk(&mut self) {
        let slot = self.slot(Kind::Connection);
        let size = if self.rng.percent(70) { *self.rng.pick(&LARGE) } else { self.size() };
        match self.rng.weighted(&[45, 45, 10]) {
            0 => {
                let call = *self.rng.pick(&["read", "recv", "readv", "recvmsg"]);
                self.say_parent(format!("bulk_up {slot} {call} {size}"));
            }
            1 => {
                let call = *self.rng.pick(&["write", "send", "writev", "sendmsg", "sendfile"]);
                self.say_parent(format!("bulk_down {slot} {call} {size}"));
            }
            _ => self.say_parent(format!("fill {slot}")),
        }
    }

    fn blocked(&mut self) {
        let call =
            *self.rng.pick(&["read", "read", "waitall", "accept", "poll", "select", "epoll"]);
        let kind = if call == "accept" { Kind::Listener } else { Kind::Connection };
        let (slot, set) = (self.slot(kind), self.rng.below(SETS));
        let wake = match call {
            "accept" => {
                let client = self.any_client(false);
                let connect = format!("connect {client}");
                self.rng
                    .pick(&[connect.clone(), connect, "shutdown".into(), "signal".into()])
                    .clone()
            }
            "read" | "waitall" => {
                let wakes = [
                    "write 100",
                    "write 1000",
                    "write 1",
                    "shut",
                    "close",
                    "reset",
                    "shutdown",
                    "signal",
                ];
                (*self.rng.pick(&wakes)).to_owned()
            }
            _ => (*self.rng.pick(&["write 1", "write 1000", "signal"])).to_owned(),
        };
        self.say(format!("blocked {call} {set} {slot} by {wake}"));
    }

    fn kid(&mut self) {
        if self.kid.is_none() {
            self.say_parent("fork".into());
            self.kid = Some(self.slots);
        } else if self.rng.percent(60) {
            let end = *self.rng.pick(&["kidexit", "kidexit", "kidkill"]);
            self.say_parent(end.into());
            self.kid = None;
        }
    }

    fn copy(&mut self) {
        let (free, slot) = (self.free_slot(), self.any_slot());
        let call = *self.rng.pick(&["dup", "dup", "dupfd", "dup2", "dup3"]);
        let target = if call.starts_with("dup2") || call.starts_with("dup3") {
            self.any_slot()
        } else {
            free
        };
        self.say(format!("{call} {target} {slot}"));
        let kind = self.slots()[slot];
        if kind != Kind::Free {
            self.slots()[target] = kind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_program() {
        assert_eq!(generate(5), generate(5));
        assert_ne!(generate(5).steps, generate(6).steps);
        assert!((1..500).all(|seed| (8..80).contains(&generate(seed).steps.len())));
    }
}

//! What kernel and limits allow.
//!
//! getrlimit(2), memfd_create(2), and sysctls below /proc/sys.

use std::fs;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, getrlimit};

use super::Finding;

/// Fewer descriptors than this do not carry a useful number of clients.
const DESCRIPTORS_MIN: u64 = 4096;
/// What a program gets where nobody raised it; mosquitto does not raise it itself.
const DESCRIPTORS_USUAL: u64 = 1024;

/// All of them.
pub(super) fn check() -> Vec<Finding> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let limit = getrlimit(Resource::Nofile);
    let sysctl = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    vec![
        kernel(&release),
        memfd(),
        descriptors(limit.current, limit.maximum),
        io_uring(sysctl("kernel/io_uring_disabled")),
        ports(sysctl("net/ipv4/ip_unprivileged_port_start"), rustix::process::geteuid().is_root()),
    ]
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (5, 6) => Finding::note(
            "kernel",
            format!("Linux {release}"),
            "io_uring sends came with 5.6; dpu-server sends one by one here",
        ),
        _ => Finding::ok("kernel", format!("Linux {release}")),
    }
}

/// The session's memory is a sealed memfd.
fn memfd() -> Finding {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let sealed = rustix::fs::memfd_create("mqttshim-doctor", flags).and_then(|memory| {
        rustix::fs::ftruncate(&memory, 4096)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK)
    });
    match sealed {
        Ok(()) => Finding::ok("memfd", "can be made and sealed"),
        Err(errno) => Finding::mend(
            "memfd",
            format!("cannot be made and sealed: {errno}"),
            "allow memfd_create in the container's seccomp profile, and memory in its limits",
        ),
    }
}

fn descriptors(soft: Option<u64>, hard: Option<u64>) -> Finding {
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let fact = format!("{} (soft), {} (hard)", show(soft), show(hard));
    if hard.is_some_and(|hard| hard < DESCRIPTORS_MIN) {
        let advice = "raise the hard limit: LimitNOFILE= in systemd, or /etc/security/limits.conf";
        return Finding::mend("descriptors", fact, advice);
    }
    if soft.is_some_and(|soft| soft <= DESCRIPTORS_USUAL) {
        let advice = "every client takes one in the broker: `ulimit -n` before starting it; dpu-server raises its own";
        return Finding::note("descriptors", fact, advice);
    }
    Finding::ok("descriptors", fact)
}

fn io_uring(disabled: Option<u32>) -> Finding {
    match disabled {
        Some(0) => Finding::ok("io_uring", "allowed"),
        None => Finding::ok("io_uring", "this kernel has no switch for it"),
        Some(1) => Finding::note(
            "io_uring",
            "restricted to CAP_SYS_ADMIN and one group (kernel.io_uring_disabled = 1)",
            "run dpu-server as root, or put its group into kernel.io_uring_group; else it sends one by one",
        ),
        Some(value) => Finding::note(
            "io_uring",
            format!("switched off (kernel.io_uring_disabled = {value})"),
            "sysctl kernel.io_uring_disabled=0 lets dpu-server batch its sends; else it sends one by one",
        ),
    }
}

fn ports(start: Option<u32>, is_root: bool) -> Finding {
    let start = start.unwrap_or(1024);
    let fact = format!("free for everybody from {start} (net.ipv4.ip_unprivileged_port_start)");
    if start <= 1883 || is_root {
        return Finding::ok("ports", fact);
    }
    Finding::mend(
        "ports",
        fact,
        "port 1883 needs root here, CAP_NET_BIND_SERVICE, or a lower ip_unprivileged_port_start",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn old_kernels_are_noted() {
        assert_eq!(kernel("5.4.0-1").verdict, Verdict::Note);
        assert_eq!(kernel("5.6").verdict, Verdict::Ok);
        assert_eq!(kernel("6.18.44-x").verdict, Verdict::Ok);
        assert_eq!(kernel("odd").verdict, Verdict::Ok);
    }

    #[test]
    fn too_few_descriptors_are_to_be_mended_and_the_usual_number_is_noted() {
        assert_eq!(descriptors(Some(1024), Some(4095)).verdict, Verdict::Mend);
        assert_eq!(descriptors(Some(1024), Some(4096)).verdict, Verdict::Note);
        assert_eq!(descriptors(Some(1025), Some(4096)).verdict, Verdict::Ok);
        assert_eq!(descriptors(None, None).verdict, Verdict::Ok);
    }

    #[test]
    fn a_restricted_io_uring_still_works() {
        assert_eq!(io_uring(Some(0)).verdict, Verdict::Ok);
        assert_eq!(io_uring(Some(1)).verdict, Verdict::Note);
        assert_eq!(io_uring(Some(2)).verdict, Verdict::Note);
        assert_eq!(io_uring(None).verdict, Verdict::Ok);
    }

    #[test]
    fn mqtts_port_must_be_bindable() {
        assert_eq!(ports(Some(1024), false).verdict, Verdict::Ok);
        assert_eq!(ports(Some(2000), false).verdict, Verdict::Mend);
        assert_eq!(ports(Some(2000), true).verdict, Verdict::Ok);
    }

    #[test]
    fn this_machine_can_seal_memory() {
        assert_eq!(memfd().verdict, Verdict::Ok);
    }
}

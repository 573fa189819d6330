//! What went over an interface, taken by Wireshark's dumpcap and judged by its tshark.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::{Folder, Process, wait};

/// Frames that wait for the disk, in MiB: none may be missing, or it looks lost.
const BUFFER_MIB: &str = "200";
/// In the last frame.
const MARK: &[u8] = b"the capture ends here";
/// RFC 863.
const DISCARD: u16 = 9;
/// Where the mark is looked for, from the end of the file.
const LAST_BYTES: usize = 1 << 20;

/// A capture under way.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: PathBuf,
}

/// What was captured.
#[derive(Debug)]
pub struct Recording(PathBuf);

impl Capture {
    /// Starts it at `interface`, in the namespace of this thread.
    ///
    /// # Panics
    /// If it does not begin.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Folder, interface: &str) -> Capture {
        let file = folder.join("capture.pcapng");
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-B", BUFFER_MIB, "-i", interface, "-w"]).arg(&file);
        let mut process = Process::start("dumpcap", folder.path(), &mut command);
        process.await_log("File: ");
        Capture { process, file }
    }

    /// Ends it, after all that went over the interface before; `beyond` is an address there.
    ///
    /// # Panics
    /// If the machine was too slow to capture every frame.
    #[track_caller]
    pub fn end(mut self, beyond: IpAddr) -> Recording {
        // What is captured is written later, in its order: a last frame tells when all of it is.
        let mark = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
        mark.send_to(MARK, (beyond, DISCARD)).expect("there is a way");
        wait::until("all frames are written", || {
            let written = fs::read(&self.file).ok()?;
            written[written.len().saturating_sub(LAST_BYTES)..]
                .windows(MARK.len())
                .find(|it| *it == MARK)?;
            Some(())
        });
        self.process.signal(Signal::INT);
        self.process.await_end();
        let said = self.process.log();
        let none_dropped = said
            .lines()
            .any(|line| line.starts_with("Packets received/dropped") && line.contains("/0 ("));
        assert!(none_dropped, "dumpcap missed frames, which says nothing of the card: {said}");
        Recording(self.file)
    }
}

impl Recording {
    /// Frames that match a display filter of Wireshark's, which checks checksums here; a line each.
    ///
    /// # Panics
    /// If tshark does not know the filter.
    #[must_use]
    #[track_caller]
    pub fn frames(&self, filter: &str) -> Vec<String> {
        let mut command = Command::new("tshark");
        command.args(["-n", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
        let output = command.arg("-r").arg(&self.0).args(["-Y", filter]).output();
        let output = output.expect("the test asked for tshark");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tshark: {errors}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

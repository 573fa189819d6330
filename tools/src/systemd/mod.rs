//! `mqttshim systemd`: the drop-in that puts a service on the card, and the unit of dpu-server.
//!
//! Nothing is written: what is printed goes where systemd looks. The service's own settings are read first, because its
//! sandbox decides whether the library is found, and whether it finds the session.

mod sandbox;
mod unit;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::library;
use crate::run::{self, Fallback};
use unit::Unit;

/// Where root's dpu-server serves the session.
const SESSION: &str = "/run/mqttshim/session.sock";
/// Exit status when the service's program cannot be preloaded: `mqttshim run`'s.
const CANNOT_PRELOAD: u8 = 3;

/// Shown below the options.
pub(crate) const HELP: &str = "\
Examples:
  mqttshim systemd --server | sudo tee /etc/systemd/system/dpu-server.service
  sudo mkdir -p /etc/systemd/system/mosquitto.service.d
  mqttshim systemd mosquitto.service |
      sudo tee /etc/systemd/system/mosquitto.service.d/mqttshim.conf
  sudo systemctl daemon-reload
  sudo systemctl enable --now dpu-server
  sudo systemctl restart mosquitto

Settings of the service that keep the library from working are changed where adding a line does it, and named in a comment \
(\"mend:\") where it does not. To take the service off the card again, remove the file.

Exit status: 0; 1 there is no such unit; 3 its program cannot be preloaded (the drop-in is printed all the same).";

/// Arguments of `mqttshim systemd`.
#[derive(Args, Debug)]
pub(crate) struct SystemdArgs {
    /// The service to put on the card, such as mosquitto.service
    #[arg(required_unless_present = "server", conflicts_with = "server", value_name = "UNIT")]
    unit: Option<String>,
    /// Print the unit of dpu-server instead
    #[arg(long)]
    server: bool,
    /// Ports whose listeners are offloaded, PORT[-PORT],… [without it 1883]
    #[arg(long, value_name = "PORTS")]
    listen: Option<String>,
    /// Where dpu-server serves the session
    #[arg(long, value_name = "PATH", default_value = SESSION)]
    session: PathBuf,
    /// Without a card: go on with kernel sockets, or fail [without it kernel]
    #[arg(long, value_enum)]
    fallback: Option<Fallback>,
}

/// Prints.
pub(crate) fn run(args: &SystemdArgs) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let Some(name) = &args.unit else {
        out.write_all(server_unit(std::env::current_exe().ok()).as_bytes())
            .context("cannot print")?;
        return Ok(ExitCode::SUCCESS);
    };
    let name = if name.contains('.') { name.clone() } else { format!("{name}.service") };
    let folders: Vec<PathBuf> = unit::FOLDERS.map(PathBuf::from).into();
    let unit = Unit::read(&name, &folders).with_context(|| {
        format!(
            "there is no unit {name} in {}; see `systemctl list-unit-files`",
            unit::FOLDERS.join(", ")
        )
    })?;
    let library = library::find()?;
    let obstacle = unit.program().and_then(|program| {
        run::obstacle_of(Path::new(program), &library)
            .unwrap_or_else(|error| Some(format!("{error:#}")))
    });
    let has_socket = folders.iter().any(|folder| folder.join(socket_of(&name)).is_file());
    let text = drop_in(args, &name, &unit, &library, obstacle.as_deref(), has_socket);
    out.write_all(text.as_bytes()).context("cannot print")?;
    Ok(if obstacle.is_some() { ExitCode::from(CANNOT_PRELOAD) } else { ExitCode::SUCCESS })
}

fn socket_of(name: &str) -> String {
    format!("{}.socket", name.trim_end_matches(".service"))
}

fn server_unit(program: Option<PathBuf>) -> String {
    let folder = program.as_deref().and_then(Path::parent).unwrap_or(Path::new("/usr/local/bin"));
    include_str!("dpu-server.service").replace("@BIN@", &folder.to_string_lossy())
}

fn drop_in(
    args: &SystemdArgs,
    name: &str,
    unit: &Unit,
    library: &Path,
    obstacle: Option<&str>,
    has_socket: bool,
) -> String {
    let mut text = format!(
        "# /etc/systemd/system/{name}.d/{}, made by `mqttshim systemd`.\n",
        unit::OWN_DROP_IN
    );
    let mut remarks: Vec<String> = obstacle.map(|why| format!("mend: {why}")).into_iter().collect();
    if has_socket {
        remarks.push(format!(
            "note: sockets that {} hands over stay with the kernel; let the broker open its own",
            socket_of(name)
        ));
    }
    let advice = sandbox::check(unit, library, &args.session);
    remarks.extend(advice.remarks);
    for remark in &remarks {
        text += &format!("# {remark}\n");
    }
    text += "\n[Unit]\nWants=dpu-server.service\nAfter=dpu-server.service\n\n[Service]\n";
    let preload = match unit.variable("LD_PRELOAD").filter(|list| !list.is_empty()) {
        Some(list) => format!("{list}:{}", library.display()),
        None => library.display().to_string(),
    };
    text += &format!("Environment=LD_PRELOAD={preload}\n");
    text += &format!("Environment=MQTTSHIM_SESSION={}\n", args.session.display());
    if let Some(ports) = &args.listen {
        text += &format!("Environment=MQTTSHIM_LISTEN={ports}\n");
    }
    if let Some(fallback) = args.fallback {
        text += &format!("Environment=MQTTSHIM_FALLBACK={}\n", fallback.name());
    }
    for line in &advice.lines {
        text += &format!("{line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(settings: &str) -> String {
        let mut unit = Unit::default();
        unit.parse(&format!("[Service]\n{settings}"));
        let args = SystemdArgs {
            unit: None,
            server: false,
            listen: Some("1884".into()),
            session: SESSION.into(),
            fallback: Some(Fallback::Fail),
        };
        drop_in(&args, "a.service", &unit, Path::new("/usr/lib/libmqttshim.so"), None, false)
    }

    #[test]
    fn a_plain_service_needs_the_variables_and_the_order() {
        let text = printed("ExecStart=/usr/sbin/a\nLimitNOFILE=65536\n");
        let expected = "# /etc/systemd/system/a.service.d/mqttshim.conf, made by `mqttshim systemd`.\n\n\
            [Unit]\nWants=dpu-server.service\nAfter=dpu-server.service\n\n\
            [Service]\nEnvironment=LD_PRELOAD=/usr/lib/libmqttshim.so\n\
            Environment=MQTTSHIM_SESSION=/run/mqttshim/session.sock\n\
            Environment=MQTTSHIM_LISTEN=1884\nEnvironment=MQTTSHIM_FALLBACK=fail\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_preload_of_the_service_stays_in_front() {
        let text = printed("Environment=LD_PRELOAD=/lib/jemalloc.so\n");
        assert!(text.contains("=/lib/jemalloc.so:/usr/lib/libmqttshim.so\n"), "{text}");
    }

    #[test]
    fn the_servers_unit_names_the_program_beside_this_one() {
        let text = server_unit(Some("/opt/mqttshim/bin/mqttshim".into()));
        assert!(
            text.contains("ExecStart=/opt/mqttshim/bin/dpu-server run --metrics 127.0.0.1:9184\n"),
            "{text}"
        );
    }
}

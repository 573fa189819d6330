//! The program `dpu-server`: all of it is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    dpu_server::cli::main()
}

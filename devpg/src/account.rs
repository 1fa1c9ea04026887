//! The operating-system account under which the server runs.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::DevPgError;

const PASSWD: &str = "/etc/passwd";

/// Who we are, and whom the server runs as: PostgreSQL refuses to run as root.
#[derive(Debug)]
pub(crate) struct Account {
    /// Effective user id of this process.
    pub(crate) uid: u32,
    /// User and group id of `nobody` when this process is root.
    nobody: Option<(u32, u32)>,
}

impl Account {
    /// Looks up who this process is and, when it is root, who `nobody` is.
    pub(crate) fn of_this_process() -> Result<Self, DevPgError> {
        let uid = effective_uid().map_err(|detail| DevPgError::Account { detail })?;
        let nobody = match uid {
            0 => Some(nobody_in_passwd().map_err(|detail| DevPgError::Account { detail })?),
            _ => None,
        };
        Ok(Self { uid, nobody })
    }

    /// Whether programs run under another account than this process.
    pub(crate) fn is_dropped(&self) -> bool {
        self.nobody.is_some()
    }

    /// Makes `command` run as the server's user. Supplementary groups are dropped with the user id.
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Some((uid, gid)) = self.nobody {
            command.uid(uid).gid(gid);
        }
    }
}

/// The standard library has no call for it; `id` is in POSIX.
fn effective_uid() -> Result<u32, String> {
    let output = Command::new("id")
        .arg("-u")
        .stdin(Stdio::null())
        .output()
        .or_else(|_| Command::new("/usr/bin/id").arg("-u").stdin(Stdio::null()).output())
        .map_err(|e| format!("`id -u` could not be run: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("`id -u` answered {text:?} ({})", output.status))
}

fn nobody_in_passwd() -> Result<(u32, u32), String> {
    let text = fs::read_to_string(PASSWD).map_err(|e| format!("{PASSWD}: {e}"))?;
    parse_nobody(&text).ok_or_else(|| format!("{PASSWD} has no usable entry for `nobody`"))
}

fn parse_nobody(passwd: &str) -> Option<(u32, u32)> {
    let entry = passwd.lines().find(|line| line.starts_with("nobody:"))?;
    let mut ids = entry.split(':').skip(2).map(parse_id);
    let ids = (ids.next()??, ids.next()??);
    // An entry that maps `nobody` to root would bring the server back to where it refuses to run.
    (ids.0 != 0).then_some(ids)
}

/// macOS writes `nobody` as -2, which stands for the same bits as an unsigned id.
fn parse_id(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_read_from_linux_and_macos_files() {
        let linux = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533:n:/nonexistent:/x\n";
        assert_eq!(parse_nobody(linux), Some((65534, 65533)));
        let macos = "##\nnobody:*:-2:-2:Unprivileged User:/var/empty:/usr/bin/false\n";
        assert_eq!(parse_nobody(macos), Some((u32::MAX - 1, u32::MAX - 1)));
    }

    #[test]
    fn an_entry_that_does_not_name_an_unprivileged_user_is_refused() {
        assert_eq!(parse_nobody("nobody:x:0:0:::\n"), None);
        assert_eq!(parse_nobody("nobody:x:65534\n"), None);
        assert_eq!(parse_nobody("root:x:0:0:::\n"), None);
    }
}

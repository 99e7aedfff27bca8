//! Peers of the control socket: the user of the connecting process, and the role that its groups
//! give it.
//!
//! The kernel reports user and groups of the process at the time of its connection (SO_PEERCRED,
//! SO_PEERGROUPS), so that neither the user database nor another process can change them later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::audit::{Audit, Entry};
use api::principal::{Origin, Principal};
use api::{Problem, Role};
use axum::Router;
use axum::extract::{Extension, Request};
use hugepages::{OwnerError, group_id};
use listeners::{Peer, Stream};
use parking_lot::Mutex;
use rustix::fs::{XattrFlags, setxattr};
use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// Groups whose members have a role on the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// `control.group`: role `admin`.
    pub admin: Option<u32>,
    /// `control.operate_group`.
    pub operate: Option<u32>,
    /// `control.read_group`.
    pub read: Option<u32>,
}

impl Groups {
    /// Looks up the groups that the configuration names.
    ///
    /// # Errors
    /// Fails if a group does not exist, except the default of `control.group`.
    pub fn of(control: &config::checked::Control) -> Result<Groups, OwnerError> {
        Ok(Groups {
            admin: group_id("control.group", control.group.as_deref())?,
            operate: group_id("control.operate_group", control.operate_group.as_deref())?,
            read: group_id("control.read_group", control.read_group.as_deref())?,
        })
    }

    /// Returns the role of a peer; `None` if it has none.
    pub fn role(&self, peer: &Peer) -> Option<Role> {
        if peer.user == 0 || peer.user == geteuid().as_raw() {
            return Some(Role::Admin);
        }
        let is_member = |group: Option<u32>| {
            group.is_some_and(|group| peer.group == group || peer.groups.contains(&group))
        };
        [(self.admin, Role::Admin), (self.operate, Role::Operate), (self.read, Role::Read)]
            .into_iter()
            .find_map(|(group, role)| is_member(group).then_some(role))
    }

    /// Returns whether members of other groups than `control.group` may connect.
    pub fn needs_acl(&self) -> bool {
        self.operate.is_some() || self.read.is_some()
    }

    /// Lets the members of all groups connect to the socket at `path`, by an ACL: a mode for all
    /// users would let any user take connections of the listener.
    ///
    /// # Errors
    /// The file system does not support POSIX ACLs, or another system call fails.
    pub fn set_acl(&self, path: &std::path::Path) -> std::io::Result<()> {
        let acl = acl(&[self.admin, self.operate, self.read]);
        Ok(setxattr(path, "system.posix_acl_access", &acl, XattrFlags::empty())?)
    }
}

/// Returns the attribute `system.posix_acl_access` for a socket that its owner and these groups may
/// connect to: a version, and entries of tag, permissions and ID (linux/posix_acl_xattr.h).
fn acl(groups: &[Option<u32>]) -> Vec<u8> {
    const VERSION: u32 = 2;
    const USER_OBJ: u16 = 0x01;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    const READ_WRITE: u16 = 6;
    let mut groups: Vec<u32> = groups.iter().copied().flatten().collect();
    groups.sort_unstable();
    groups.dedup();
    let of_groups = groups.into_iter().map(|group| (GROUP, READ_WRITE, group));
    let entries = [(USER_OBJ, READ_WRITE, u32::MAX), (GROUP_OBJ, 0, u32::MAX)].into_iter();
    let entries = entries.chain(of_groups);
    let entries = entries.chain([(MASK, READ_WRITE, u32::MAX), (OTHER, 0, u32::MAX)]);
    let mut octets = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        octets.extend(tag.to_le_bytes());
        octets.extend(permissions.to_le_bytes());
        octets.extend(id.to_le_bytes());
    }
    octets
}

/// Returns the name of a user for the audit log: `uid=1000(ann)`, or `uid=1000` without a name.
pub fn user_name(user: u32) -> String {
    described(user, hugepages::user_name(user).as_deref())
}

fn described(user: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("uid={user}({name})"),
        None => format!("uid={user}"),
    }
}

/// Maximum time of looking up a user's name; the user database may be on the network.
const NAME_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of names that are kept.
const MAX_NAMES: usize = 1024;
/// Maximum number of lookups at a time. Each occupies a thread, for as long as the database takes.
const MAX_LOOKUPS: usize = 4;

/// Identifies peers.
pub struct Peers {
    groups: Groups,
    audit: Audit,
    /// Names by user id, as in the audit log; only of users that the database knows.
    names: Mutex<HashMap<u32, Arc<str>>>,
    lookups: Arc<Semaphore>,
}

impl Peers {
    /// Creates an instance for these groups.
    pub fn new(groups: Groups, audit: Audit) -> Peers {
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Peers { groups, audit, names: Mutex::default(), lookups }
    }

    /// Returns `app` with the identity of a connection's peer added to each request; for a peer
    /// without a role, a service that rejects each request.
    pub async fn identify(self: &Arc<Peers>, stream: &Stream<UnixStream>, app: Router) -> Router {
        let peer = match stream.peer() {
            Ok(peer) => peer,
            Err(error) => {
                let problem = Problem::internal(format!("the peer is unknown: {error}"));
                return Router::new().fallback(async move || problem.clone());
            }
        };
        let name = self.name(peer.user).await;
        match self.groups.role(&peer) {
            Some(role) => {
                let principal = Principal::local(&name, role);
                Router::new().fallback_service(app).layer(Extension(principal))
            }
            None => {
                let peers = Arc::clone(self);
                Router::new().fallback(async move |request: Request| {
                    let problem = Problem::no_role(&name);
                    let caller = (&*name, None, &Origin::socket());
                    let mut entry = Entry::new(caller, "authenticate", &request);
                    entry.denied(&problem);
                    peers.audit.record_rejected(entry).await;
                    problem
                })
            }
        }
    }

    /// Returns the name of a user as in the audit log.
    async fn name(&self, user: u32) -> Arc<str> {
        if let Some(name) = self.names.lock().get(&user) {
            return Arc::clone(name);
        }
        let Some(name) = self.look_up(user).await else { return described(user, None).into() };
        let name: Arc<str> = described(user, Some(&name)).into();
        let mut names = self.names.lock();
        if names.len() < MAX_NAMES {
            names.insert(user, Arc::clone(&name));
        }
        name
    }

    /// Returns the name of a user in the user database; `None` if it has none, if the database does
    /// not answer in time, or if [`MAX_LOOKUPS`] are in progress.
    async fn look_up(&self, user: u32) -> Option<String> {
        let permit = Arc::clone(&self.lookups).try_acquire_owned().ok()?;
        let found = tokio::task::spawn_blocking(move || {
            let name = hugepages::user_name(user);
            drop(permit);
            name
        });
        tokio::time::timeout(NAME_TIMEOUT, found).await.ok()?.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_role_of_all_groups_counts() {
        let groups = Groups { admin: Some(10), operate: Some(20), read: Some(30) };
        let role = |user, group, others: &[u32]| {
            groups.role(&Peer { user, group, groups: others.to_vec() })
        };
        assert_eq!(role(0, 99, &[]), Some(Role::Admin));
        assert_eq!(role(geteuid().as_raw(), 99, &[]), Some(Role::Admin));
        assert_eq!(role(77, 10, &[]), Some(Role::Admin));
        assert_eq!(role(77, 99, &[30]), Some(Role::Read));
        assert_eq!(role(77, 30, &[5, 20]), Some(Role::Operate));
        assert_eq!(role(77, 20, &[10]), Some(Role::Admin));
        assert_eq!(role(77, 99, &[98]), None);
        assert_eq!(Groups::default().role(&Peer { user: 77, group: 0, groups: vec![0] }), None);
    }

    #[tokio::test]
    async fn lookups_are_bounded_and_names_that_were_found_are_kept() {
        let peers = Peers::new(Groups::default(), Audit::default());
        let hanging = Arc::clone(&peers.lookups).acquire_many_owned(MAX_LOOKUPS as u32).await;
        assert_eq!(&*peers.name(0).await, "uid=0", "the database does not answer");
        drop(hanging);
        assert_eq!(&*peers.name(0).await, "uid=0(root)");
        assert_eq!(&*peers.name(4_000_000_000).await, "uid=4000000000");
        let kept: Vec<u32> = peers.names.lock().keys().copied().collect();
        assert_eq!(kept, [0]);
        let _hanging = Arc::clone(&peers.lookups).acquire_many_owned(MAX_LOOKUPS as u32).await;
        assert_eq!(&*peers.name(0).await, "uid=0(root)");
    }

    #[test]
    fn acl_has_the_layout_of_the_kernel() {
        let path =
            std::path::Path::new("/dev/shm").join(format!("weir-acl-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let groups = Groups { admin: Some(20), operate: Some(10), read: None };
        assert!(groups.needs_acl());
        groups.set_acl(&path).unwrap();
        let mut read = [0; 256];
        let read_back = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut read).unwrap();
        assert_eq!(read[..read_back], acl(&[Some(10), Some(20)]), "the kernel accepts it as it is");
        std::fs::remove_file(&path).unwrap();
    }
}

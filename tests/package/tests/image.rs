//! The image of `make image`: it boots, forwards and reboots as user data say, has no secret and no
//! identity, and has the same bytes when it is built again.

use nics::guest::Guest;
use package_test::Result;
use package_test::artifacts::{image, repository, target};
use package_test::disk::{Disk, IMAGE_DISK, SHELL};
use package_test::examination::{
    COMMAND, REQUESTS, SERVICES, VFIO, after_boot, config, finish, lab, run,
};
use package_test::machine::Machine;
use package_test::page::image_block;
use package_test::scan::scan;
use package_test::traffic::{Steps, assert_undisturbed, load};
use package_test::tree;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::lab::client::Client;
use tests::lab::topology::Lab;

/// The addresses of the machine, which its cloud would give by DHCP.
const NETWORK: &str = r#"version: 2
ethernets:
  management:
    match: { macaddress: "02:00:00:00:00:01" }
    addresses: [10.0.9.2/24]
    routes: [{ to: default, via: 10.0.9.1 }]
  ingress:
    match: { macaddress: "02:00:00:00:00:11" }
    mtu: 9001
    addresses: [10.0.1.10/24]
  egress:
    match: { macaddress: "02:00:00:00:00:12" }
    mtu: 9001
    addresses: [10.0.2.10/24]
"#;

const METADATA: &str = "instance-id: i-image-test\nlocal-hostname: appliance\n";

/// Prints the process ids of Weir's daemons, and of two services that needrestart does restart.
const PROCESSES: &str = "systemctl show --property MainPID --value \
                         weir-fastpath weir-slowpath chrony ssh";

#[test]
#[ignore = "boots a virtual machine: make image-test"]
fn image_forwards_from_user_data_alone_also_after_a_reboot() -> Result {
    let mut steps = Steps::start();
    let (lab, gateway) = lab()?;
    let key = lab.folder.file("operator");
    keygen(&key)?;
    let data = user_data(&std::fs::read_to_string(key.with_extension("pub"))?)?;
    let files = [("user-data", &*data), ("meta-data", METADATA), ("network-config", NETWORK)];
    let disk = Disk::of_image(&files)?;
    steps.done("image copied, user data written");
    let mut machine = Machine::new(&lab, &disk, "")?;
    let mut boots = BTreeSet::new();
    let guest = after_boot("first boot", &machine, &lab, &VFIO, &mut boots, &mut steps)?;
    examine_first_boot(&guest)?;
    steps.done("image examined");
    examine_ssh(&lab, &key)?;
    steps.done("ssh: the key, no password, no root");
    let host_keys = run(&guest, "cat /etc/ssh/ssh_host_*_key.pub")?;
    examine_updates(&guest, &lab)?;
    steps.done("needrestart left Weir alone");

    // Tunes as the book's page says, reserves hugepages at boot, and installs the boot loader again
    // as an update of its package does.
    let pages = run(&guest, "cat /proc/sys/vm/nr_hugepages")?;
    let hugepages = format!("hugepages={pages}");
    let setting = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {hugepages}\"\n");
    guest.write("/etc/default/grub.d/60-hugepages.cfg", &setting)?;
    println!("{}", run(&guest, "weir tune apply && update-grub 2>&1")?);
    let install = "grub-install --target=x86_64-efi --no-nvram --force-extra-removable 2>&1";
    println!("{}", run(&guest, install)?);
    machine.reboot(guest)?;
    steps.done("tuned, boot loader updated, shut down by `systemctl reboot`");
    let guest = after_boot("reboot", &machine, &lab, &VFIO, &mut boots, &mut steps)?;
    let line = run(&guest, "cat /proc/cmdline")?;
    println!("{line}");
    for parameter in [&*hugepages, "console=ttyS0,115200n8", "iommu=pt"] {
        assert!(line.split(' ').any(|one| one == parameter), "{parameter} in {line}");
    }
    assert_eq!(run(&guest, "cat /etc/ssh/ssh_host_*_key.pub")?, host_keys);
    assert_eq!(boots.len(), 2, "boots: {boots:?}");
    drop(guest);
    finish(gateway)
}

/// Returns the page's user data with the configuration and the key of this test, and with the
/// test's shell, which the appliance does not need.
fn user_data(key: &str) -> Result<String> {
    let page = image_block("yaml", "#cloud-config")?;
    let page = with_content(&page, "/etc/weir/weir.toml", &config("auto"))?;
    let page = with_content(&page, "/etc/weir/services.toml", SERVICES)?;
    let example = "ssh-ed25519 AAAA... operator";
    assert!(page.contains(example), "{page}");
    let unit = "/etc/systemd/system/test-shell.service";
    let shell = indented(SHELL);
    // needrestart must not restart the test's shell.
    let setting = "$nrconf{override_rc}{qr(^test-shell)} = 0;";
    Ok(page.replace(example, key.trim())
        + &format!("  - path: {unit}\n    content: |\n{shell}")
        + &format!("  - path: /etc/needrestart/conf.d/test.conf\n    content: {setting}\n")
        + "runcmd:\n  - [systemctl, enable, --now, test-shell]\n")
}

/// Replaces the content of a file in user data.
fn with_content(data: &str, path: &str, text: &str) -> Result<String> {
    let missing = || format!("the page's user data write no {path}");
    let at = data.find(&format!("  - path: {path}\n")).ok_or_else(missing)?;
    let start = "    content: |\n";
    let begin = at + data[at..].find(start).ok_or_else(missing)? + start.len();
    let is_content = |line: &&str| line.starts_with("      ") || line.trim().is_empty();
    let length: usize =
        data[begin..].split_inclusive('\n').take_while(is_content).map(str::len).sum();
    Ok(format!("{}{}{}", &data[..begin], indented(text), &data[begin + length..]))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}\n")).collect()
}

fn examine_first_boot(guest: &Guest) -> Result {
    let status = run(guest, "cloud-init status --wait --long")?;
    assert!(status.contains("status: done"), "{status}");
    println!("{}", run(guest, "cat /usr/lib/weir-image/release; df -h / /boot/efi; free -m")?);
    let size: u64 = run(guest, "df --block-size=1 --output=size / | tail -1")?.trim().parse()?;
    assert!(size > IMAGE_DISK * 9 / 10, "the root file system has {size} bytes");
    let line = run(guest, "cat /proc/cmdline")?;
    println!("{line}");
    for parameter in ["console=ttyS0,115200n8", "intel_iommu=on", "iommu=pt", "panic=10"] {
        assert!(line.split(' ').any(|one| one == parameter), "{parameter} in {line}");
    }
    // The first start of slowpath had the unit's drop-in with its CPUs, which was written at this
    // boot.
    let slowpath = "/proc/$(systemctl show --property MainPID --value weir-slowpath)/status";
    let cpus = run(guest, &format!("grep ^Cpus_allowed_list {slowpath}"))?;
    assert_eq!(cpus.split_whitespace().last(), Some("0"), "{cpus}");
    let id = run(guest, "cat /etc/machine-id")?;
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let passwords = "awk -F: '$2 !~ /^[*!]/ { print $1 }' /etc/shadow";
    assert_eq!(run(guest, passwords)?, "", "accounts with a password");
    assert_eq!(run(guest, "findmnt --noheadings --output FSTYPE /boot/efi")?, "vfat");

    let upgrades = run(guest, "unattended-upgrade --dry-run --debug 2>&1 || true")?;
    let allowed = upgrades.lines().find(|line| line.contains("Allowed origins"));
    let security = "origin=Debian,codename=bookworm-security,label=Debian-Security";
    println!("{}", allowed.unwrap_or(&upgrades));
    assert!(allowed.is_some_and(|line| line.ends_with(&format!("are: {security}"))), "{upgrades}");
    let settings = run(guest, "apt-config dump | grep -E '^(APT::Periodic|Unattended-Upgrade)'")?;
    for setting in [
        r#"APT::Periodic::Unattended-Upgrade "1";"#,
        r#"Unattended-Upgrade::Automatic-Reboot "false";"#,
        r#"Unattended-Upgrade::Package-Blacklist:: "^weir(-dbgsym)?$";"#,
    ] {
        assert!(settings.lines().any(|line| line == setting), "{setting} in {settings}");
    }
    run(guest, "systemctl is-enabled apt-daily-upgrade.timer").map(drop)
}

/// Logs in over the management network as an operator does, and tries what must be refused.
fn examine_ssh(lab: &Lab, key: &Path) -> Result {
    let known = format!("UserKnownHostsFile={}", lab.folder.file("known").display());
    let options =
        ["-o", "StrictHostKeyChecking=accept-new", "-o", &known, "-o", "ConnectTimeout=60"];
    let ssh = |more: &[&str], user: &str, command: &str| {
        let end = format!("{user}@10.0.9.2");
        lab.weir.command("ssh", &[&options[..], more, &[&end, command]].concat())
    };
    let identity = key.display().to_string();
    let with_key = ["-o", "BatchMode=yes", "-i", &identity];
    // The group weir-admin may use the command without sudo.
    let status = ssh(&with_key, "debian", "id --name --groups && weir status")?;
    assert!(status.contains("weir-admin") && status.contains("able to serve"), "{status}");
    let passwords = "PreferredAuthentications=password,keyboard-interactive";
    let with_password = ["-o", "PubkeyAuthentication=no", "-o", passwords];
    for (options, user) in [(&with_key[..], "root"), (&with_password[..], "debian")] {
        let refused = ssh(options, user, "true").err().map(|e| e.to_string());
        let refused = refused.ok_or_else(|| format!("{user} was let in with {options:?}"))?;
        assert!(refused.contains("Permission denied (publickey)"), "{user}: {refused}");
    }
    Ok(())
}

/// Replaces a library that all programs use, and lets needrestart act as after an upgrade by
/// unattended-upgrades, with traffic.
fn examine_updates(guest: &Guest, lab: &Lab) -> Result {
    let client = Client::start(&lab.aws[0], load(u64::MAX))?;
    client.wait_for(REQUESTS, COMMAND)?;
    let before = run(guest, PROCESSES)?;
    let library = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    run(guest, &format!("cp {library} {library}.new && mv {library}.new {library}"))?;
    let restart = "DEBIAN_FRONTEND=noninteractive needrestart -q 2>&1";
    let (_, output) = guest.status(restart, COMMAND * 5)?;
    println!("{output}");
    let after = run(guest, PROCESSES)?;
    let [before, after] = [&before, &after].map(|text| {
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    });
    println!("processes before {before:?}, after {after:?}");
    assert_eq!(before[..2], after[..2], "processes of Weir");
    assert_ne!(before[2..], after[2..], "no other service was restarted");
    client.wait_for(REQUESTS, COMMAND)?;
    client.stop_requests();
    assert_undisturbed("needrestart", &client.finish()?);
    Ok(())
}

#[test]
#[ignore = "reads the image: make image-test"]
fn image_has_no_secret_no_identity_and_no_trace_of_the_build() -> Result {
    let folder = Folder::new("scan")?;
    let raw = image("weir.raw")?;
    let [esp, root] = partitions(&raw)?;
    let tree = folder.0.join("root");
    std::fs::create_dir(&tree)?;
    let dump = format!("rdump / {}", tree.display());
    let device = format!("{}?offset={root}", raw.display());
    tree::run(Command::new("debugfs").args(["-R", &dump, &device]))?;
    let efi = folder.0.join("esp");
    std::fs::create_dir(&efi)?;
    let device = format!("{}@@{esp}", raw.display());
    tree::run(Command::new("mcopy").args(["-s", "-i", &device, "::/"]).arg(&efi))?;
    assert!(tree.join("usr/bin/fastpath").exists() && efi.join("EFI/BOOT/BOOTX64.EFI").exists());

    let repository = repository().display().to_string();
    let found = scan(&efi, &[&repository])?;
    assert!(found.is_empty(), "{found:#?}");
    let (examples, found): (Vec<_>, Vec<_>) =
        scan(&tree, &[&repository])?.into_iter().partition(|line| is_example(&tree, line));
    println!("examples in Debian's packages: {examples:#?}");
    assert!(found.is_empty(), "{found:#?}");
    // A planted key and a changed example are found.
    std::fs::write(tree.join("etc/ssh/ssh_host_rsa_key.pub"), "ssh-rsa AAAA")?;
    let changed = examples.first().and_then(|line| line.split(": ").next()).ok_or("no example")?;
    let file = tree.join(changed.trim_start_matches('/'));
    std::fs::write(&file, [std::fs::read(&file)?, b"1".to_vec()].concat())?;
    let found = scan(&tree, &[])?.into_iter().filter(|line| !is_example(&tree, line));
    let found: Vec<String> = found.collect();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.contains(&"/etc/ssh/ssh_host_rsa_key.pub: ssh host key".to_owned()), "{found:?}");
    // systemd creates the machine id in a file that is empty.
    assert_eq!(std::fs::metadata(tree.join("etc/machine-id"))?.len(), 0);
    Ok(())
}

/// Returns whether a key or token is an example in the documentation or the tests of a package of
/// Debian: the file has the checksum that dpkg has recorded for the package, or was compiled from
/// such a file. Files of Weir's package are no examples.
fn is_example(tree: &Path, line: &str) -> bool {
    let Some((path, "private key" | "JSON web token")) = line.split_once(": ") else {
        return false;
    };
    let mut path = path.trim_start_matches('/').to_owned();
    if let Some((name, _)) = path.clone().split_once(".cpython-") {
        path = format!("{}.py", name.replace("__pycache__/", ""));
    }
    let Ok(sum) = tree::run(Command::new("md5sum").arg(tree.join(&path))) else {
        return false;
    };
    let entry = format!("{}  {path}", sum.split(' ').next().unwrap_or_default());
    let info = std::fs::read_dir(tree.join("var/lib/dpkg/info")).into_iter().flatten().flatten();
    let mut lists = info.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".md5sums") && name != "weir.md5sums"
    });
    lists.any(|list| {
        std::fs::read_to_string(list).is_ok_and(|text| text.lines().any(|line| line == entry))
    })
}

#[test]
#[ignore = "builds the image again: make image-test"]
fn second_build_gives_the_same_bytes_and_is_signed() -> Result {
    let first = image("SHA256SUMS")?;
    let folder = Folder::new("again")?;
    let again = &folder.0;
    let debs = first.with_file_name("debs");
    tree::run(Command::new("cp").arg("--recursive").arg(&debs).arg(again))?;
    let key = again.join("key");
    keygen(&key)?;
    let script = repository().join("image/build.sh");
    let package = image("weir.deb")?;
    tree::run(Command::new(&script).arg(package).arg(again).env("SIGN_KEY", &key))?;
    let [before, after] = [&first, &again.join("SHA256SUMS")].map(std::fs::read_to_string);
    assert_eq!(before?, after?);
    println!("{}", std::fs::read_to_string(&first)?);

    let sum = |folder: &Path| {
        let mut sum = Command::new("sha256sum");
        tree::run(sum.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(folder))
    };
    sum(again)?;
    sum(first.parent().unwrap_or(&first))?;
    verify_signature(again)?;
    // A changed file does not match the list, and a changed list does not match its signature.
    std::fs::write(again.join("weir.packages"), "none\n")?;
    assert!(sum(again).is_err());
    let list = std::fs::read_to_string(again.join("SHA256SUMS"))?;
    std::fs::write(again.join("SHA256SUMS"), list.replacen('0', "1", 1))?;
    assert!(verify_signature(again).is_err());
    Ok(())
}

/// Verifies the signature as the book's page on the image says.
fn verify_signature(folder: &Path) -> Result<String> {
    let public = std::fs::read_to_string(folder.join("key.pub"))?;
    std::fs::write(folder.join("signers"), format!("weir-image {public}"))?;
    let verify = "ssh-keygen -Y verify -f signers -I weir-image -n weir-image -s SHA256SUMS.sig \
                  < SHA256SUMS";
    tree::run(Command::new("sh").args(["-c", verify]).current_dir(folder))
}

#[test]
#[ignore = "reads the image: make image-test"]
fn formats_hold_the_same_disk_and_the_lists_what_is_installed() -> Result {
    let raw = image("weir.raw")?;
    for (format, name) in [("qcow2", "weir.qcow2"), ("vpc", "weir.vhd")] {
        let other = image(name)?;
        let compare = ["compare", "-f", "raw", "-F", format];
        let mut qemu = Command::new("qemu-img");
        println!("{name}: {}", tree::run(qemu.args(compare).arg(&raw).arg(other))?.trim());
    }
    // Azure: a fixed disk of whole MiB, then the footer with its own checksum.
    let vhd = image("weir.vhd")?;
    let disk = std::fs::metadata(&raw)?.len();
    assert_eq!((disk % (1 << 20), std::fs::metadata(&vhd)?.len()), (0, disk + 512));
    let mut tail = Command::new("tail");
    let footer = tail.args(["-c", "512"]).arg(&vhd).output()?.stdout;
    let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| footer[at + n]));
    assert_eq!((&footer[..8], number(60)), (&b"conectix"[..], 2), "a fixed disk");
    let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = footer[64..68].iter().map(|byte| u32::from(*byte)).sum();
    assert_eq!(number(64), !(sum - own));

    let packages = std::fs::read_to_string(image("weir.packages")?)?;
    let named: Vec<&str> = packages.lines().filter_map(|line| line.split(' ').next()).collect();
    for name in ["weir", "cloud-init", "linux-image-cloud-amd64", "unattended-upgrades"] {
        assert!(named.contains(&name), "{name}");
    }
    let sbom: Value = serde_json::from_slice(&std::fs::read(image("weir.cdx.json")?)?)?;
    let components = sbom["components"].as_array().ok_or("no components")?;
    assert_eq!(components.len(), named.len());
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    Ok(())
}

/// Returns the offsets of the EFI system partition and of the root file system, in bytes.
fn partitions(disk: &Path) -> Result<[u64; 2]> {
    let table = tree::run(Command::new("sfdisk").arg("--json").arg(disk))?;
    let table: Value = serde_json::from_str(&table)?;
    let start = |n: usize| table["partitiontable"]["partitions"][n]["start"].as_u64();
    match (start(0), start(1)) {
        (Some(esp), Some(root)) => Ok([esp * 512, root * 512]),
        _ => Err(format!("not two partitions: {table}").into()),
    }
}

fn keygen(path: &Path) -> Result {
    let options = ["-q", "-t", "ed25519", "-N", "", "-C", "weir-image", "-f"];
    tree::run(Command::new("ssh-keygen").args(options).arg(path)).map(drop)
}

/// A directory for one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let folder = target()?.join(format!("image-{name}"));
        if folder.exists() {
            // Left by a test that was killed.
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

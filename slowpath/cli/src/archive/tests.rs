//! Tests of the format: each byte damaged, each length truncated, versions, and crafted files.

use serde_json::json;

use super::*;

fn example() -> (Manifest, Contents) {
    let mut manifest = Manifest::new("weir-a".into(), "2026-11-27T08:00:00Z".into());
    manifest.revision = Some(7);
    manifest.secrets =
        vec![SecretReference { key: "api.token_file".into(), path: "/etc/weir/token".into() }];
    let file = |role, text: &str| ConfigurationFile {
        role,
        path: "/etc/weir/a".into(),
        mode: 0o640,
        text: text.into(),
    };
    let contents = Contents {
        objects: Some(vec![json!({ "kind": "Service", "name": "a" }), json!({ "name": "ü\n" })]),
        configuration: Some(vec![
            file(Role::Main, "name = \"weir-a\"\n"),
            file(Role::Entry("a.toml".into()), "\u{0}\"\\"),
            file(Role::Services, ""),
            file(Role::Folder, ""),
        ]),
        state: Some(vec![StateValue::Seed("JLfvgnHc2kaSUFaI".into())]),
    };
    (manifest, contents)
}

fn bytes() -> Vec<u8> {
    let (manifest, contents) = example();
    encode(manifest, &contents).unwrap()
}

/// Returns a file with these lines and a correct checksum of the whole.
fn with_checksum(content: &[u8]) -> Vec<u8> {
    let mut file = content.to_vec();
    file.extend(lines(&[Checksum { sha256: checksum(content) }]).unwrap());
    file
}

/// Returns the example with an edited manifest and a correct checksum of the whole.
fn with_manifest(edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let file = bytes();
    let (content, _) = split_checksum(&file).unwrap();
    let (first, rest) = split_line(content).unwrap();
    let mut value: Value = serde_json::from_slice(first).unwrap();
    edit(&mut value);
    let mut content = lines(&[value]).unwrap();
    content.extend(rest);
    with_checksum(&content)
}

fn error(bytes: &[u8]) -> String {
    decode(bytes).unwrap_err().to_string()
}

#[test]
fn contents_round_trip_in_whole_and_in_parts() {
    let (manifest, all) = example();
    for keep in 0..8 {
        let contents = Contents {
            objects: all.objects.clone().filter(|_| keep & 1 != 0),
            configuration: all.configuration.clone().filter(|_| keep & 2 != 0),
            state: all.state.clone().filter(|_| keep & 4 != 0),
        };
        let archive = decode(&encode(manifest.clone(), &contents).unwrap()).unwrap();
        assert_eq!(archive.contents, contents);
        assert_eq!(Manifest { parts: Vec::new(), ..archive.manifest }, manifest);
    }
    let empty = Contents { objects: Some(Vec::new()), ..Contents::default() };
    assert_eq!(decode(&encode(manifest, &empty).unwrap()).unwrap().contents, empty);
}

#[test]
fn every_damaged_byte_and_every_truncation_is_noticed() {
    let file = bytes();
    for at in 0..file.len() {
        for flip in [1, 0x20, 0x80] {
            let mut damaged = file.clone();
            damaged[at] ^= flip;
            assert!(decode(&damaged).is_err(), "byte {at} ^ {flip}");
        }
        let mut longer = file.clone();
        longer.insert(at, b'0');
        assert!(decode(&longer).is_err(), "a byte more at {at}");
        assert!(decode(&file[..at]).is_err(), "the first {at} bytes");
    }
    assert!(error(&file[..file.len() - 1]).contains("incomplete"));
    let mut middle = file.clone();
    middle[file.len() / 2] ^= 1;
    assert!(error(&middle).contains("damaged: its checksum does not match"));
    assert!(error(&[&file[..], b"\n"].concat()).contains("incomplete"));
}

#[test]
fn an_error_names_the_damaged_part_if_only_the_checksum_of_the_whole_is_correct() {
    for (number, name) in PARTS.iter().enumerate() {
        let wrong = format!("the part `{name}` does not match the manifest");
        let file = with_manifest(|value| {
            value["parts"][number]["sha256"] = "0".repeat(64).into();
        });
        assert!(error(&file).contains(&wrong), "{}", error(&file));
        for bytes in [u64::MAX, u64::from(u32::MAX), 1 << 40] {
            let file = with_manifest(|value| value["parts"][number]["bytes"] = bytes.into());
            assert!(error(&file).contains(&wrong), "{}", error(&file));
        }
        let file = with_manifest(|value| {
            value["parts"].as_array_mut().unwrap().remove(number);
        });
        assert!(decode(&file).is_err(), "{name} is not in the manifest");
    }
}

#[test]
fn parts_have_one_order_and_known_names() {
    let swap = |a: usize, b: usize| {
        error(&with_manifest(|value| value["parts"].as_array_mut().unwrap().swap(a, b)))
    };
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        assert!(swap(a, b).contains("part"), "{}", swap(a, b));
    }
    let twice = with_manifest(|value| {
        let parts = value["parts"].as_array_mut().unwrap();
        let empty = json!({ "name": "state", "bytes": 0, "sha256": checksum(b"") });
        parts.push(empty);
    });
    assert!(error(&twice).contains("the part `state` is unknown, or not in its order"));
    let unknown = with_manifest(|value| value["parts"][2]["name"] = "../../etc/shadow".into());
    assert!(error(&unknown).contains("`../../etc/shadow` is unknown"), "{}", error(&unknown));
    let (first, _) = split_line(&bytes()).map(|(a, b)| (a.to_vec(), b.len())).unwrap();
    let more = [&first[..], b"\n{}\n"].concat();
    assert!(decode(&with_checksum(&more)).is_err());
}

#[test]
fn a_newer_format_is_rejected_with_its_version_and_the_first_format_is_read() {
    let newer = with_manifest(|value| {
        *value = json!({ "weir_backup": 2, "weir": "9.1.0", "something": ["new"] });
    });
    let text = error(&newer);
    assert!(text.contains("format 2") && text.contains("written by Weir 9.1.0"), "{text}");
    assert!(text.contains(env!("CARGO_PKG_VERSION")) && text.contains("up to 1"), "{text}");
    let zero = error(&with_manifest(|value| value["weir_backup"] = 0.into()));
    assert!(zero.contains("format 0, which does not exist"), "{zero}");
    let huge = with_manifest(|value| value["weir_backup"] = u64::MAX.into());
    assert!(error(&huge).contains(&format!("format {}", u64::MAX)));
    // What the first format looked like when it was introduced.
    let text = "{\"weir_backup\":1,\"weir\":\"0.1.0\",\"appliance\":\"a\",\"created\":\
                \"2026-11-27T08:00:00Z\",\"revision\":2,\"secrets\":[],\"parts\":[{\"name\":\
                \"objects\",\"bytes\":15,\"sha256\":\"1e6f7e2d\"}]}\n{\"name\":\"web\"}\n";
    let text = text.replace("1e6f7e2d", &checksum(b"{\"name\":\"web\"}\n"));
    let archive = decode(&with_checksum(text.as_bytes())).unwrap();
    assert_eq!(archive.contents.objects, Some(vec![json!({ "name": "web" })]));
    assert_eq!(archive.manifest.revision, Some(2));
}

#[test]
fn other_files_are_not_backups() {
    for text in [
        "",
        "\n",
        "kind: Service\nname: a\n",
        "[{\"kind\": \"Service\"}]\n",
        "{\"sha256\":\"\"}\n",
        "{}\n{\"sha256\":\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\"}\n",
    ] {
        let text = error(text.as_bytes());
        assert!(text.contains("not a backup") || text.contains("damaged"), "{text}");
    }
    assert!(error(&with_checksum(b"{}\n")).contains("not a backup"));
    assert!(error(&with_checksum(b"name: a\n")).contains("not a backup"));
    assert!(error(&with_checksum(&[0xff, b'\n'])).contains("not a backup"));
    let deep = [&b"["[..], &b"[".repeat(100_000)[..], b"\n"].concat();
    assert!(error(&with_checksum(&deep)).contains("not a backup"));
    let fields = with_manifest(|value| value["more"] = true.into());
    assert!(error(&fields).contains("its first line: unknown field"), "{}", error(&fields));
    let negative = with_manifest(|value| value["revision"] = (-1).into());
    assert!(error(&negative).contains("its first line"), "{}", error(&negative));
}

#[test]
fn a_second_seed_is_an_error() {
    let (manifest, mut contents) = example();
    let seed = contents.state.as_ref().unwrap()[0].clone();
    contents.state = Some(vec![seed.clone(), seed]);
    let file = encode(manifest, &contents).unwrap();
    assert!(error(&file).contains("the state has 2 seeds instead of one"), "{}", error(&file));
}

#[test]
fn the_largest_backup_is_one_that_the_api_restores() {
    let manifest = Manifest::new("weir-a".into(), "2026-11-27T08:00:00Z".into());
    let with_text = |length: usize| {
        let objects = vec![json!({ "name": "a" }), json!({ "name": "x".repeat(length) })];
        Contents { objects: Some(objects), ..Contents::default() }
    };
    let overhead = encode(manifest.clone(), &with_text(1 << 25)).unwrap().len() - (1 << 25);
    let largest = with_text(MAX_BYTES - overhead);
    assert_eq!(encode(manifest.clone(), &largest).unwrap().len(), MAX_BYTES);
    // What `weir restore` sends.
    let objects: Vec<String> = largest.objects.iter().flatten().map(Value::to_string).collect();
    assert!(format!("[{}]", objects.join(",")).len() <= api::MAX_RESTORE_BYTES);
    let larger = encode(manifest, &with_text(MAX_BYTES - overhead + 1)).unwrap_err();
    assert!(larger.to_string().contains("weir get KIND -o yaml"), "{larger}");
}

#[test]
fn files_beyond_the_maximum_are_not_read() {
    let path = std::env::temp_dir().join(format!("weir-archive-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    assert!(matches!(read(&path), Err(ArchiveError::TooLarge)));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read(&path), Err(ArchiveError::Unreadable(_))));
    assert!(matches!(read(Path::new("/")), Err(ArchiveError::Unreadable(_))));
}

use super::*;

#[test]
fn what_people_type_is_printed_the_same() {
    for text in [
        "simple",
        "simple columns=4",
        "mirror",
        "mirror:3",
        "striped-mirror",
        "striped-mirror:3",
        "striped-mirror columns=2",
        "parity",
        "parity:2",
        "parity:3 columns=32",
        "parity columns=1",
    ] {
        assert_eq!(Resiliency::parse(text).map(|r| r.to_string()), Ok(text.to_owned()));
    }
    assert_eq!(Resiliency::parse("mirror:2"), Resiliency::parse("mirror"));
    assert_eq!(Resiliency::parse("parity:1 columns=auto"), Resiliency::parse("parity"));
    assert_eq!(Resiliency::parse("mirror columns=1"), Resiliency::parse("mirror"));
    assert_eq!(format!("{:>16}|", Kind::StripedMirror), "  striped-mirror|");
}

#[test]
fn nonsense_is_refused() {
    for text in [
        "",
        " ",
        "raid5",
        "Parity",
        "parity:",
        "parity:0",
        "parity:4",
        "parity:256",
        "parity:-1",
        "mirror:1",
        "mirror:4",
        "mirror:2:2",
        "simple:1",
        "simple:2",
        "striped-mirror:0",
        "mirror columns=2",
        "parity columns=0",
        "parity columns=33",
        "parity columns=",
        "parity columns=2 columns=2",
        "parity 2",
    ] {
        assert!(Resiliency::parse(text).is_err(), "{text:?} was taken");
    }
}

#[test]
fn each_wrong_value_has_its_own_error() {
    use BadResiliency as Bad;
    let new = Resiliency::new;
    assert_eq!(new(Kind::Parity, Some(2), None, None, None), Err(Bad::CopiesNotTaken { kind: Kind::Parity }));
    assert_eq!(new(Kind::Mirror, None, Some(1), None, None), Err(Bad::ParityNotTaken { kind: Kind::Mirror }));
    assert_eq!(new(Kind::Mirror, None, None, Some(3), None), Err(Bad::MirrorColumns { columns: 3 }));
    assert_eq!(new(Kind::Simple, None, None, Some(33), None), Err(Bad::Columns { columns: 33 }));
    for interleave in [0, 4096, 32 * KIB, 96 * KIB, 2048 * KIB, u64::MAX] {
        assert_eq!(
            new(Kind::Simple, None, None, None, Some(interleave)),
            Err(Bad::Interleave { interleave })
        );
    }
    assert!(Bad::Interleave { interleave: 1 }.to_string().contains("64K to 1024K"));
}

#[test]
fn members_and_failures_are_those_of_the_layout() {
    for (text, tolerance, least, wanted) in [
        ("simple", 0, 1, 1),
        ("simple columns=4", 0, 1, 4),
        ("mirror", 1, 2, 2),
        ("mirror:3", 2, 3, 3),
        ("striped-mirror", 1, 2, 2),
        ("striped-mirror:3 columns=2", 2, 3, 6),
        ("parity", 1, 2, 2),
        ("parity:2 columns=3", 2, 3, 5),
        ("parity:3", 3, 4, 4),
    ] {
        let r = Resiliency::parse(text).unwrap();
        assert_eq!(
            (r.tolerance(), r.min_members(), r.wanted_members()),
            (tolerance, least, wanted),
            "{text}"
        );
    }
}

#[test]
fn decoding_checks_what_it_reads() {
    let good = Resiliency::parse("parity:2 columns=4").unwrap();
    let text = serde_json::to_string(&good).unwrap();
    assert_eq!(serde_json::from_str::<Resiliency>(&text).unwrap(), good);
    let mirror = r#"{"kind":"mirror","copies":C,"parity":P,"columns":null,"interleave":262144}"#;
    let read = |c: &str, p: &str| {
        serde_json::from_str::<Resiliency>(&mirror.replace('C', c).replace('P', p)).is_ok()
    };
    // Four copies: metadata of a pool that survives three failures.
    assert!(read("2", "0") && read("3", "0") && read("4", "0"));
    assert!(!read("0", "0") && !read("1", "0") && !read("5", "0") && !read("2", "1"));
    assert!(serde_json::from_str::<Resiliency>(&text.replace("\"parity\":2", "\"parity\":0")).is_err());
    assert!(serde_json::from_str::<Resiliency>(&text.replace("262144", "0")).is_err());
}

//! Several threads at once, with the background threads running.

use super::*;

#[test]
fn writers_renamers_and_flushes_get_along() {
    let rig = Rig::new("parity", 3, 128);
    rig.fs().unmount().expect("unmounts");
    let pool = rig.sim.open(&[]).expect("assembles");
    let options = FsOptions {
        background: true,
        commit: Duration::from_millis(1),
        clock: Clock::system(),
        ..options(&rig.clock)
    };
    let fs = Fs::mount(pool, options).expect("mounts");
    let dirs: Vec<Ino> = (0..3).map(|n| fs.t_mkdir(ROOT_INO, &format!("d{n}"))).collect();
    std::thread::scope(|scope| {
        let (fs, dirs) = (&fs, &dirs);
        // More than the cache may hold dirty, so that writers have to wait.
        scope.spawn(move || {
            let ino = fs.t_create(dirs[2], "big");
            let block = noise(99, 1 << 20);
            for n in 0..48 {
                fs.t_write(ino, (n % 16) << 20, &block);
            }
            fs.t_cool();
            let data = fs.t_read(ino);
            assert!(data.chunks(1 << 20).all(|part| part == block));
        });
        scope.spawn(move || {
            for _ in 0..100 {
                fs.tick();
                fs.store.checkpoint().expect("takes a checkpoint");
                fs.t_cool();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        for worker in 0..4_u64 {
            scope.spawn(move || {
                let name = format!("own{worker}");
                let ino = fs.t_create(dirs[0], &name);
                let mut at = 0;
                let mut model = Vec::new();
                for round in 0..300_u64 {
                    let data = noise(worker * 1000 + round, 1 + (round as usize * 977) % 30_000);
                    let offset = (round * 7919) % 100_000;
                    fs.t_write(ino, offset, &data);
                    let end = offset as usize + data.len();
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[offset as usize..end].copy_from_slice(&data);
                    if round % 9 == 0 {
                        fs.t_size(ino, offset);
                        model.resize(offset as usize, 0);
                    }
                    if round % 5 == 0 {
                        fs.fsync(ino, round % 2 == 0).expect("syncs");
                    }
                    let to = (at + 1) % 3;
                    fs.rename(dirs[at], name.as_bytes(), dirs[to], name.as_bytes(), RenameMode::Replace)
                        .expect("moves");
                    at = to;
                    let common = format!("common{}", round % 3);
                    let _ = fs.mkdir(dirs[to], common.as_bytes(), 0o755, &ROOT).map(|d| fs.forget(d.ino, 1));
                    let _ = fs.rename(
                        dirs[0],
                        common.as_bytes(),
                        dirs[1],
                        common.as_bytes(),
                        RenameMode::Replace,
                    );
                    let _ = fs.rmdir(dirs[1], common.as_bytes());
                    assert!(fs.t_read(ino) == model, "worker {worker} round {round}");
                }
            });
        }
    });
    fs.sync_all().expect("syncs");
    check::tables(&fs);
    fs.unmount().expect("unmounts");
}

# Several processes write to SQLite databases in the directory given; all they wrote must be there afterwards.
import hashlib, os, sqlite3, sys

WRITERS, TRANSACTIONS, ROWS = 4, 20, 10
JOURNALS = ("DELETE", "WAL", "TRUNCATE")


def content(writer, number):
    return hashlib.sha256(b"%d-%d" % (writer, number)).digest() * (1 + number % 40)


def connect(directory, journal):
    db = sqlite3.connect(os.path.join(directory, journal.lower() + ".db"), timeout=120, isolation_level=None)
    assert db.execute("PRAGMA journal_mode=" + journal).fetchone()[0] == journal.lower()
    return db


def write(directory, journal, writer):
    db = connect(directory, journal)
    for transaction in range(TRANSACTIONS):
        db.execute("BEGIN IMMEDIATE")
        for row in range(ROWS):
            number = transaction * ROWS + row
            db.execute("INSERT INTO t VALUES (?, ?, ?)", (writer, number, content(writer, number)))
        # What is taken back must not be there.
        db.execute("SAVEPOINT s")
        db.execute("DELETE FROM t WHERE writer = ?", (writer,))
        db.execute("ROLLBACK TO s")
        db.execute("COMMIT")
    db.close()


def verify(directory, journal):
    db = connect(directory, journal)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = db.execute("SELECT writer, number, content FROM t").fetchall()
    assert len(rows) == WRITERS * TRANSACTIONS * ROWS, len(rows)
    assert len({row[:2] for row in rows}) == len(rows)
    for writer, number, data in rows:
        assert data == content(writer, number), (writer, number)
    db.close()


def main(what, directory):
    for journal in JOURNALS:
        if what == "write":
            db = connect(directory, journal)
            db.execute("CREATE TABLE t (writer INTEGER, number INTEGER, content BLOB, PRIMARY KEY (writer, number))")
            db.close()
            children = []
            for writer in range(WRITERS):
                child = os.fork()
                if child == 0:
                    try:
                        write(directory, journal, writer)
                        os._exit(0)
                    except BaseException as error:
                        print(journal, writer, repr(error), file=sys.stderr, flush=True)
                        os._exit(1)
                children.append(child)
            failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
            assert not failed, "%s: %d writers failed" % (journal, len(failed))
        verify(directory, journal)


main(*sys.argv[1:])

package job

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite" of database/sql
)

const (
	dbName        = "jobs.db"
	schemaVersion = 1
	applicationID = 0x6d6f7672 // "movr"; see "PRAGMA application_id"
	dbReaders     = 4
)

// minSQLite is the first version without a race that can corrupt a database in
// WAL mode (https://www.sqlite.org/wal.html, "the WAL-reset bug").
var minSQLite = [3]int{3, 51, 3}

// Times are nanoseconds since the epoch. spec and data are JSON; spec apart,
// because it can be large and hardly ever changes.
const schema = `
CREATE TABLE jobs (
	id        BLOB PRIMARY KEY NOT NULL,
	state     TEXT NOT NULL,
	created   INTEGER NOT NULL,
	ended     INTEGER,
	owner     TEXT NOT NULL,
	labels    TEXT,
	submitter TEXT,
	key       TEXT,
	body      BLOB NOT NULL,
	failures  INTEGER NOT NULL,
	spec      TEXT NOT NULL,
	data      TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_key ON jobs (submitter, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_ended ON jobs (ended, state) WHERE ended IS NOT NULL;
CREATE TABLE events (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	at      INTEGER NOT NULL,
	job     BLOB NOT NULL,
	type    TEXT NOT NULL,
	state   TEXT NOT NULL,
	reason  TEXT,
	owner   TEXT NOT NULL,
	version INTEGER NOT NULL
) STRICT;
CREATE INDEX events_job ON events (job, seq);
`

// database is the file of jobs: one connection that writes, for the writer
// alone, and a few that read. In memory there is one for both.
type database struct {
	write  *sql.DB // one connection
	read   *sql.DB
	memory bool
}

// openDatabase opens or makes the database in dir, "" for one in memory.
func openDatabase(dir string) (*database, error) {
	d := &database{memory: dir == ""}
	if err := d.open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database of jobs in %q: %w; look at that disk, and free space if it is full", dir, err), d.close())
	}
	return d, nil
}

func (d *database) open(dir string) (err error) {
	name := ":memory:"
	if !d.memory {
		if err := checkFileSystem(dir); err != nil {
			return err
		}
		path := filepath.Join(dir, dbName)
		// SQLite makes its other files with the mode of this one.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
			return err
		}
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		name = "file:" + (&url.URL{Path: path}).EscapedPath()
	}
	// In the name, so that they hold for every connection there will be.
	const pragmas = "?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_pragma=journal_size_limit(67108864)"
	if d.write, err = sql.Open("sqlite", name+pragmas); err != nil {
		return err
	}
	d.write.SetMaxOpenConns(1)
	if err := d.checkVersion(); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	if d.memory {
		// A second connection would be another database; so all share one,
		// which nobody may hold for long.
		d.read = d.write
		return nil
	}
	d.read, err = sql.Open("sqlite", name+"?mode=ro&_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	d.read.SetMaxOpenConns(dbReaders)
	d.read.SetMaxIdleConns(dbReaders)
	return nil
}

func (d *database) checkVersion() error {
	var v string
	if err := d.write.QueryRow("SELECT sqlite_version()").Scan(&v); err != nil {
		return err
	}
	return checkSQLite(v)
}

// SQLiteVersion is the version of the SQLite in this program, with an error if
// Open would refuse it.
func SQLiteVersion() (version string, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	if err := db.QueryRow("SELECT sqlite_version()").Scan(&version); err != nil {
		return "", err
	}
	return version, checkSQLite(version)
}

func checkSQLite(version string) error {
	var have [3]int
	for i, part := range strings.SplitN(version, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return errors.New("SQLite's version is not a version")
		}
		have[i] = n
	}
	for i, min := range minSQLite {
		if have[i] != min {
			if have[i] > min {
				break
			}
			return fmt.Errorf("SQLite %s can corrupt its write-ahead log; build with 3.51.3 or later", version)
		}
	}
	return nil
}

// prepare sets the connection up and makes the tables of a new file.
func (d *database) prepare() error {
	var app, version, tables int
	for _, q := range []struct {
		text string
		into *int
	}{
		{"PRAGMA application_id", &app}, {"PRAGMA user_version", &version}, {"SELECT count(*) FROM sqlite_schema", &tables},
	} {
		if err := d.write.QueryRow(q.text).Scan(q.into); err != nil {
			return fmt.Errorf("%w; if the file is damaged, restore it, or move jobs.db* away to begin without jobs", err)
		}
	}
	fresh := tables == 0 && app == 0 && version == 0
	switch {
	case !fresh && app != applicationID:
		return fmt.Errorf("%s is another program's database; move it away", dbName)
	case version > schemaVersion:
		return fmt.Errorf("%s was written by a later version of mover (its schema is %d, this program knows up to %d); update mover", dbName, version, schemaVersion)
	}
	if !d.memory {
		// The file remembers it.
		var mode string
		if err := d.write.QueryRow("PRAGMA journal_mode=WAL").Scan(&mode); err != nil || mode != "wal" {
			return fmt.Errorf("its write-ahead log cannot be used (%q, %v)", mode, err)
		}
	}
	if fresh {
		text := fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT;", schema, applicationID, schemaVersion)
		if _, err := d.write.Exec(text); err != nil {
			return err
		}
	}
	return nil
}

// close closes what is open.
func (d *database) close() error {
	var errs []error
	if d.read != nil && d.read != d.write {
		errs = append(errs, d.read.Close())
	}
	if d.write != nil { // last, so that it can take the log away
		errs = append(errs, d.write.Close())
	}
	return errors.Join(errs...)
}
